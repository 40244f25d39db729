package interop;

/** What follows a command's name. A last word {@code @NAME} is the logical thread to run in. */
final class Arguments {
    private final String[] words;

    Arguments(String[] words) {
        this.words = words;
    }

    String text(int index) {
        if (index >= words.length) {
            throw new IllegalArgumentException("argument " + index + " is missing");
        }
        return words[index];
    }

    long number(int index) {
        return Long.parseLong(text(index));
    }

    /** Null if the command belongs to no thread. */
    String thread() {
        String last = words.length == 0 ? "" : words[words.length - 1];
        return last.startsWith("@") ? last : null;
    }
}
