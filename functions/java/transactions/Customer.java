package squeezy.functions;

import java.util.ArrayDeque;
import java.util.Deque;

/** A customer: what he owes, his last order, and his last payments. */
final class Customer {
    private static final int MOST_PAYMENTS = 5;

    final String name;
    final Deque<Payment> payments = new ArrayDeque<>();
    long balanceCents;
    Order lastOrder;

    static final class Payment {
        final long cents;
        final String receipt;

        Payment(long cents, String receipt) {
            this.cents = cents;
            this.receipt = receipt;
        }
    }

    Customer(String name) {
        this.name = name;
    }

    void pay(long cents) {
        balanceCents -= cents;
        payments.addLast(new Payment(cents, name + " paid " + cents));
        if (payments.size() > MOST_PAYMENTS) {
            payments.removeFirst();
        }
    }

    /** What was paid last, as far as it is kept. */
    long lastPaymentsCents() {
        return payments.stream().mapToLong(payment -> payment.cents).sum();
    }
}
