package squeezy.functions;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Random;

/** Sorts records that are drawn from a seed, by group and then by name. */
public final class Sort {
    private static final int MOST_RECORDS = 200_000;
    private static final int GROUPS = 1000;
    private static final int NAME_LETTERS = 12;

    private static final class Record {
        final Integer group;
        final String name;

        Record(Random random) {
            group = random.nextInt(GROUPS);
            char[] letters = new char[NAME_LETTERS];
            for (int place = 0; place < letters.length; place++) {
                letters[place] = (char) ('a' + random.nextInt(26));
            }
            name = new String(letters);
        }

        @Override
        public String toString() {
            return group + " " + name;
        }
    }

    private Sort() {}

    public static JsonObject main(JsonObject request) {
        Arguments arguments = new Arguments(request);
        int count = arguments.integer("count", 100_000, 1, MOST_RECORDS);
        Random random = new Random(arguments.seed());
        List<Record> records = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            records.add(new Record(random));
        }
        records.sort(Comparator.comparing((Record record) -> record.group).thenComparing(record -> record.name));

        Digest digest = new Digest();
        for (Record record : records) {
            digest.addLine(record.toString());
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("summary", count + " records from " + records.get(0) + " to " + records.get(count - 1));
        answer.addProperty("median", records.get(count / 2).toString());
        answer.addProperty("sha256", digest.hexadecimal());
        return answer;
    }
}
