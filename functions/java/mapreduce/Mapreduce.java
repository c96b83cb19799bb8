package squeezy.functions;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/** Counts words by map, shuffle and reduce, in the texts of the request or in texts drawn from a seed. */
public final class Mapreduce {
    private static final int REDUCERS = 8;
    private static final int SHOWN = 10;

    private Mapreduce() {}

    public static JsonObject main(JsonObject request) {
        Arguments arguments = new Arguments(request);
        List<String> texts = arguments.has("texts")
                ? arguments.texts("texts", List.of(), 1000, 100_000)
                : Texts.draw(arguments.integer("documents", 400, 1, 2000), arguments.seed());

        List<Map.Entry<String, Integer>> pairs = new ArrayList<>();
        texts.forEach(text -> map(text, pairs));
        Map<String, Integer> counts = new TreeMap<>();
        shuffle(pairs).forEach(group -> reduce(group, counts));
        return answer(texts.size(), pairs.size(), counts);
    }

    private static void map(String text, List<Map.Entry<String, Integer>> pairs) {
        for (String word : text.toLowerCase(Locale.ROOT).split("\\s+")) {
            if (!word.isEmpty()) {
                pairs.add(Map.entry(word, 1));
            }
        }
    }

    /** The pairs by word, of each reducer those that it gets. */
    private static List<Map<String, List<Integer>>> shuffle(List<Map.Entry<String, Integer>> pairs) {
        List<Map<String, List<Integer>>> groups = new ArrayList<>();
        for (int reducer = 0; reducer < REDUCERS; reducer++) {
            groups.add(new HashMap<>());
        }
        for (Map.Entry<String, Integer> pair : pairs) {
            groups.get(Math.floorMod(pair.getKey().hashCode(), REDUCERS))
                    .computeIfAbsent(pair.getKey(), word -> new ArrayList<>())
                    .add(pair.getValue());
        }
        return groups;
    }

    private static void reduce(Map<String, List<Integer>> group, Map<String, Integer> counts) {
        group.forEach((word, ones) -> counts.put(word, ones.stream().mapToInt(Integer::intValue).sum()));
    }

    private static JsonObject answer(int texts, int words, Map<String, Integer> counts) {
        Digest digest = new Digest();
        counts.forEach((word, count) -> digest.addLine(word + " " + count));
        List<Map.Entry<String, Integer>> ordered = new ArrayList<>(counts.entrySet());
        // A stable sort: words of the same count stay in their order.
        ordered.sort(Map.Entry.comparingByValue(Comparator.reverseOrder()));
        JsonArray top = new JsonArray();
        for (Map.Entry<String, Integer> entry : ordered.subList(0, Math.min(SHOWN, ordered.size()))) {
            JsonObject word = new JsonObject();
            word.addProperty("word", entry.getKey());
            word.addProperty("count", entry.getValue());
            top.add(word);
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("summary", texts + " texts have " + words + " words, " + counts.size() + " different ones");
        answer.add("top", top);
        answer.addProperty("sha256", digest.hexadecimal());
        return answer;
    }
}
