package squeezy.functions;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/** A district: its customers, and their orders that have not been delivered. */
final class District {
    static final int CUSTOMERS = 150;
    private static final int MOST_OPEN = 30;

    final List<Customer> customers = new ArrayList<>();
    final Deque<Order> open = new ArrayDeque<>();

    District(int number) {
        for (int customer = 0; customer < CUSTOMERS; customer++) {
            customers.add(new Customer("Customer " + customer + " of district " + number));
        }
    }

    /** Takes an order in; where too many are open, the oldest is delivered. */
    void add(Order order) {
        if (open.size() == MOST_OPEN) {
            deliver();
        }
        open.addLast(order);
        order.customer.lastOrder = order;
    }

    /** Delivers the oldest order, which its customer then owes. Null where none is open. */
    Order deliver() {
        Order order = open.pollFirst();
        if (order != null) {
            order.delivered = true;
            order.customer.balanceCents += order.cents();
        }
        return order;
    }
}
