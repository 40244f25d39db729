package bench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * The file that every holder of the hot key writes: who is inside, who was inside last, and when that ended. One of these
 * for each thread.
 */
final class Register {
    private static final long ME = ProcessHandle.current().pid();

    private final FileChannel file;
    private final ByteBuffer bytes = ByteBuffer.allocateDirect(24).order(ByteOrder.LITTLE_ENDIAN);
    private boolean overlap;
    private long gap;

    Register(String path) throws IOException {
        file = FileChannel.open(Path.of(path), StandardOpenOption.READ, StandardOpenOption.WRITE);
    }

    void enter() {
        try {
            read();
            overlap = bytes.getLong(0) != 0;
            long last = bytes.getLong(8);
            // On Linux, nanoTime is CLOCK_MONOTONIC, as everywhere else here.
            gap = last != 0 && last != ME ? System.nanoTime() - bytes.getLong(16) : -1;
            bytes.putLong(0, ME).position(0).limit(8);
            file.write(bytes, 0);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    void leave() {
        try {
            read();
            overlap = bytes.getLong(0) != ME;
            bytes.putLong(0, 0).putLong(8, ME).putLong(16, System.nanoTime()).position(0).limit(24);
            file.write(bytes, 0);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Whether somebody else was inside at the last entry, or has been until the last leave. */
    boolean overlap() {
        return overlap;
    }

    /** For how many ns nobody was inside before the last entry; less than nothing if this process was inside last. */
    long gap() {
        return gap;
    }

    private void read() throws IOException {
        bytes.clear();
        file.read(bytes, 0);
    }
}
