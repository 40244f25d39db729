package bench;

import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/** Samples of a time, thinned so that memory stays bounded: when it is full, every second one goes. */
final class Recorder {
    private static final int MOST = 65_536;
    private static final int SAMPLES = 2000;

    /** In microseconds. */
    private final double[] samples = new double[MOST];

    private int length;
    private long count;
    /** One of so many is kept. */
    private long stride = 1;

    private double longest;

    synchronized void add(long nanoseconds) {
        double sample = nanoseconds / 1e3;
        longest = Math.max(longest, sample);
        if (count % stride == 0) {
            if (length == MOST) {
                length /= 2;
                stride *= 2;
                for (int index = 0; index < length; index++) {
                    samples[index] = samples[2 * index];
                }
            }
            samples[length++] = sample;
        }
        count++;
    }

    synchronized double longest() {
        return longest;
    }

    /** The sample below which this part of them lies. */
    synchronized double quantile(double part) {
        return of(sorted(), part);
    }

    /** At most 2000 of them, evenly spread. */
    synchronized List<Double> thinned() {
        double[] sorted = sorted();
        if (length <= SAMPLES) {
            return Arrays.stream(sorted).boxed().toList();
        }
        return IntStream.range(0, SAMPLES).mapToObj(n -> of(sorted, (n + 0.5) / SAMPLES)).toList();
    }

    private double[] sorted() {
        double[] sorted = Arrays.copyOf(samples, length);
        Arrays.sort(sorted);
        return sorted;
    }

    private static double of(double[] sorted, double part) {
        return sorted.length == 0 ? 0 : sorted[Math.min((int) (part * sorted.length), sorted.length - 1)];
    }
}
