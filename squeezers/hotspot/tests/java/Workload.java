import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.ref.SoftReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Does what it reads, a command a line, and answers each with a line. */
public final class Workload {
    private static final int MIB = 1 << 20;
    private static final List<byte[]> blocks = new ArrayList<>();
    private static final Map<Integer, String> words = new HashMap<>();
    private static final List<SoftReference<byte[]>> caches = new ArrayList<>();
    static volatile Object sink;

    /** Native code that keeps the collector from moving anything. */
    static native void hold(byte[] array, int milliseconds);

    static native boolean isHolding();

    /** Locks a page of what is eden now. */
    static native boolean lock(byte[] array);

    private static byte[] block(int seed, int size) {
        byte[] block = new byte[size];
        for (int i = 0; i < size; i++) {
            block[i] = (byte) (seed * 31 + i * 7 + (i >>> 8));
        }
        return block;
    }

    private static int sizeOf(int seed) {
        return 16 + Integer.remainderUnsigned(seed * 0x9E3779B9, 60_000);
    }

    /** Live data: blocks of many sizes, and objects that point to each other. */
    private static void hold(int mebibytes) {
        long held = 0;
        while (held < (long) mebibytes * MIB) {
            int seed = blocks.size();
            blocks.add(block(seed, sizeOf(seed)));
            words.put(seed, "word " + seed * 17);
            held += sizeOf(seed);
        }
    }

    private static void garbage(int mebibytes) {
        for (long made = 0; made < (long) mebibytes * MIB; made += 10_000) {
            sink = new byte[10_000];
        }
        sink = null;
    }

    /** A call of a function: makes garbage and reads what it holds. Returns how long that took. */
    private static long invoke(int mebibytes) {
        long start = System.nanoTime();
        garbage(mebibytes);
        int sum = 0;
        for (byte[] block : blocks) {
            for (int i = 0; i < block.length; i += 64) {
                sum += block[i];
            }
        }
        sink = sum;
        return System.nanoTime() - start;
    }

    private static String check() {
        for (int seed = 0; seed < blocks.size(); seed++) {
            byte[] found = blocks.get(seed);
            if (found == null) {
                continue;
            }
            byte[] expected = block(seed, found.length);
            if (!java.util.Arrays.equals(found, expected)) {
                return "corrupt block " + seed;
            }
            if (!words.get(seed).equals("word " + seed * 17)) {
                return "corrupt word " + seed;
            }
        }
        for (SoftReference<byte[]> cache : caches) {
            byte[] found = cache.get();
            if (found != null && !java.util.Arrays.equals(found, block(-1, found.length))) {
                return "corrupt cache";
            }
        }
        return "right";
    }

    private static String run(String name, int number) {
        switch (name) {
            case "hold":
                hold(number);
                return "held";
            case "huge":
                /* Humongous for G1, with the default size of its regions. */
                blocks.add(block(blocks.size(), number * MIB + 12_345));
                words.put(blocks.size() - 1, "word " + (blocks.size() - 1) * 17);
                return "held";
            case "drop":
                /* Every n-th block: what is left has holes. */
                for (int i = 0; i < blocks.size(); i += number) {
                    blocks.set(i, null);
                }
                return "dropped";
            case "garbage":
                garbage(number);
                return "made";
            case "invoke":
                return Long.toString(invoke(number));
            case "cache":
                for (int i = 0; i < number; i++) {
                    caches.add(new SoftReference<>(block(-1, MIB)));
                }
                return "cached";
            case "cached":
                return Long.toString(caches.stream().filter(cache -> cache.get() != null).count());
            case "check":
                return check();
            case "critical":
                byte[] array = block(7, MIB);
                Thread thread = new Thread(() -> hold(array, number));
                thread.start();
                while (!isHolding() && thread.isAlive()) {
                    Thread.onSpinWait();
                }
                return "holding";
            case "lock":
                return lock(new byte[60_000]) ? "locked" : "refused";
            case "busy":
                long end = System.nanoTime() + number * 1_000_000L;
                while (System.nanoTime() < end) {
                    Thread.onSpinWait();
                }
                return "busy";
            case "released":
                return isHolding() ? "no" : "yes";
            default:
                return "unknown";
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0) {
            System.load(arguments[0]);
        }
        System.out.println("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = commands.readLine()) != null && !line.equals("quit")) {
            String[] words = line.split(" ");
            System.out.println(run(words[0], words.length > 1 ? Integer.parseInt(words[1]) : 0));
        }
        System.exit(0);
    }
}
