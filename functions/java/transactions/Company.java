package squeezy.functions;

import java.util.ArrayList;
import java.util.List;

/** A wholesale company: its warehouses, and the prices of what it sells. */
final class Company {
    static final int WAREHOUSES = 4;
    static final int ITEMS = 5000;

    final List<Warehouse> warehouses = new ArrayList<>();

    Company() {
        for (int number = 0; number < WAREHOUSES; number++) {
            warehouses.add(new Warehouse());
        }
    }

    /** In cents. */
    static long price(int item) {
        return 100 + item * 7919L % 9900;
    }

    int openOrders() {
        int orders = 0;
        for (Warehouse warehouse : warehouses) {
            for (District district : warehouse.districts) {
                orders += district.open.size();
            }
        }
        return orders;
    }
}
