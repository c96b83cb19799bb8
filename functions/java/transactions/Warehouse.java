package squeezy.functions;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A warehouse: its stock, and the districts that it delivers to. */
final class Warehouse {
    static final int DISTRICTS = 10;
    private static final int STOCK = 100;
    /** What is below this is ordered anew, so many at a time. */
    private static final int LOW = 10;
    private static final int REFILL = 91;

    final List<District> districts = new ArrayList<>();
    private final int[] stock = new int[Company.ITEMS];

    Warehouse() {
        Arrays.fill(stock, STOCK);
        for (int number = 0; number < DISTRICTS; number++) {
            districts.add(new District(number));
        }
    }

    void take(int item, int quantity) {
        stock[item] -= quantity;
        if (stock[item] < LOW) {
            stock[item] += REFILL;
        }
    }

    int stock(int item) {
        return stock[item];
    }
}
