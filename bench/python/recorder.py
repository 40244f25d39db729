"""Samples of a time, thinned so that memory stays bounded: when it is full, every second one goes."""

MOST = 65_536


class Recorder:
    def __init__(self):
        self.samples = []
        self.count = 0
        self.stride = 1  # one of so many is kept
        self.longest = 0.0

    def add(self, sample):
        if sample > self.longest:
            self.longest = sample
        if self.count % self.stride == 0:
            if len(self.samples) == MOST:
                self.samples = self.samples[::2]
                self.stride *= 2
            self.samples.append(sample)
        self.count += 1

    def sorted(self):
        return sorted(self.samples)


def quantile(ordered, part):
    """The sample below which this part of them lies."""
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def thinned(ordered, most):
    """At most so many of them, evenly spread."""
    if len(ordered) <= most:
        return ordered
    return [quantile(ordered, (n + 0.5) / most) for n in range(most)]
