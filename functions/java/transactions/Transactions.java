package squeezy.functions;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;

/** Carries out a mix of a wholesale company's transactions, on tables that are kept in memory. */
public final class Transactions {
    private static final Company COMPANY = new Company();

    private Transactions() {}

    public static JsonObject main(JsonObject request) {
        Arguments arguments = new Arguments(request);
        int count = arguments.integer("count", 20_000, 1, 200_000);
        Terminal terminal = new Terminal(COMPANY, arguments.seed());
        List<Terminal.Result> results = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            results.add(terminal.next());
        }

        Map<Terminal.Kind, Integer> counts = new EnumMap<>(Terminal.Kind.class);
        Map<Terminal.Kind, Long> cents = new EnumMap<>(Terminal.Kind.class);
        Digest digest = new Digest();
        for (Terminal.Result result : results) {
            counts.merge(result.kind, 1, Integer::sum);
            cents.merge(result.kind, result.cents, Long::sum);
            digest.addLine(result.line);
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("summary", count + " transactions: " + counts);
        answer.addProperty("ordered_cents", cents.getOrDefault(Terminal.Kind.NEW_ORDER, 0L));
        answer.addProperty("paid_cents", cents.getOrDefault(Terminal.Kind.PAYMENT, 0L));
        answer.addProperty("open_orders", COMPANY.openOrders());
        answer.addProperty("sha256", digest.hexadecimal());
        return answer;
    }
}
