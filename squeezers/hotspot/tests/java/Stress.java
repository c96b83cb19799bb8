import java.util.concurrent.atomic.AtomicLong;

/**
 * Threads that allocate as fast as they can and check everything they have allocated, until there is a line on
 * standard input. Then it says how many objects it has checked, and ends; with status 3 at the first wrong byte or
 * unexpected exception.
 */
public final class Stress {
    /** What a slot holds: bytes of a known content, and a chain of objects that point to each other. */
    private static final class Entry {
        final long seed;
        final byte[] bytes;
        final int[] numbers;
        final Entry previous;

        Entry(long seed, int size, Entry previous) {
            this.seed = seed;
            this.previous = previous;
            bytes = new byte[size];
            numbers = new int[size / 16 + 1];
            // Fresh memory has to read as zero: Java promises it.
            for (byte fresh : bytes) {
                if (fresh != 0) {
                    fail("a new array is not zero", seed);
                }
            }
            java.util.Arrays.fill(bytes, (byte) seed);
            for (int i = 0; i < numbers.length; i++) {
                numbers[i] = (int) (seed + i);
            }
        }

        void check() {
            for (byte found : bytes) {
                if (found != (byte) seed) {
                    fail("bytes have changed", seed);
                }
            }
            for (int i = 0; i < numbers.length; i++) {
                if (numbers[i] != (int) (seed + i)) {
                    fail("numbers have changed", seed);
                }
            }
            if (previous != null && previous.seed != seed - 1) {
                fail("an object points to a wrong one", seed);
            }
        }
    }

    private static final AtomicLong checked = new AtomicLong();
    private static volatile boolean ended;

    static void fail(String what, long seed) {
        System.err.println("corrupt: " + what + ", object " + seed);
        Runtime.getRuntime().halt(3);
    }

    private static int size(long random) {
        int kind = (int) (random & 255);
        if (kind == 0) {
            return 1 << 20;
        }
        return kind < 16 ? 20_000 : 64 + (int) (random >>> 8 & 1023);
    }

    private static void work(int thread) {
        Entry[] slots = new Entry[1024];
        long random = 88172645463325252L + thread;
        long seed = (long) thread << 40;
        while (!ended) {
            for (int i = 0; i < 200; i++, seed++) {
                random ^= random << 13;
                random ^= random >>> 7;
                random ^= random << 17;
                int slot = (int) (random >>> 20 & slots.length - 1);
                if (slots[slot] != null) {
                    slots[slot].check();
                    checked.incrementAndGet();
                }
                Entry first = new Entry(seed, size(random), null);
                seed++;
                slots[slot] = new Entry(seed, 64, first);
            }
        }
        for (Entry entry : slots) {
            if (entry != null) {
                entry.check();
                entry.previous.check();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        // An exception that the code below cannot throw is one more sign of a broken heap.
        Thread.setDefaultUncaughtExceptionHandler((thread, exception) -> {
            exception.printStackTrace();
            Runtime.getRuntime().halt(3);
        });
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            int number = i;
            threads[i] = new Thread(() -> work(number));
            threads[i].start();
        }
        System.out.println("ready");
        System.in.read();
        ended = true;
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println(checked.get());
    }
}
