// Samples of a time, thinned so that memory stays bounded: when it is full, every second one goes.
const MOST = 65_536;

export class Recorder {
  samples = [];
  count = 0;
  stride = 1; // one of so many is kept
  longest = 0;

  add(sample) {
    this.longest = Math.max(this.longest, sample);
    if (this.count % this.stride === 0) {
      if (this.samples.length === MOST) {
        this.samples = this.samples.filter((_, index) => index % 2 === 0);
        this.stride *= 2;
      }
      this.samples.push(sample);
    }
    this.count += 1;
  }

  sorted() {
    return Float64Array.from(this.samples).sort();
  }
}

// The sample below which this part of them lies.
export function quantile(sorted, part) {
  return sorted.length ? sorted[Math.min(Math.floor(part * sorted.length), sorted.length - 1)] : 0;
}

// At most so many of them, evenly spread.
export function thinned(sorted, most) {
  if (sorted.length <= most) return [...sorted];
  return Array.from({ length: most }, (_, n) => quantile(sorted, (n + 0.5) / most));
}
