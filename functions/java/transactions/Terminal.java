package squeezy.functions;

import java.util.HashSet;
import java.util.Random;
import java.util.Set;

/** Where transactions are entered: each is drawn, carried out, and comes back as one line. */
final class Terminal {
    private final Company company;
    private final Random random;
    private Warehouse warehouse;

    /** The kinds of transactions, and how many of 24 are of each. */
    enum Kind {
        NEW_ORDER(10),
        PAYMENT(10),
        ORDER_STATUS(1),
        DELIVERY(1),
        STOCK_LEVEL(1),
        CUSTOMER_REPORT(1);

        private final int share;

        Kind(int share) {
            this.share = share;
        }

        private static Kind draw(Random random) {
            int left = random.nextInt(24);
            for (Kind kind : values()) {
                left -= kind.share;
                if (left < 0) {
                    return kind;
                }
            }
            throw new AssertionError("the shares are 24");
        }
    }

    /** What came of a transaction. */
    static final class Result {
        final Kind kind;
        final long cents;
        final String line;

        Result(Kind kind, long cents, String text) {
            this.kind = kind;
            this.cents = cents;
            line = kind + " " + text;
        }
    }

    Terminal(Company company, long seed) {
        this.company = company;
        random = new Random(seed);
    }

    Result next() {
        Kind kind = Kind.draw(random);
        warehouse = company.warehouses.get(random.nextInt(Company.WAREHOUSES));
        switch (kind) {
            case NEW_ORDER:
                return newOrder(kind, district());
            case PAYMENT:
                return payment(kind, customer(district()));
            case ORDER_STATUS:
                return orderStatus(kind, customer(district()));
            case DELIVERY:
                return delivery(kind);
            case STOCK_LEVEL:
                return stockLevel(kind, district());
            default:
                return customerReport(kind, customer(district()));
        }
    }

    private District district() {
        return warehouse.districts.get(random.nextInt(Warehouse.DISTRICTS));
    }

    private Customer customer(District district) {
        return district.customers.get(random.nextInt(District.CUSTOMERS));
    }

    private Result newOrder(Kind kind, District district) {
        Order order = new Order(customer(district));
        int lines = 5 + random.nextInt(11);
        for (int number = 0; number < lines; number++) {
            Order.Line line = new Order.Line(random.nextInt(Company.ITEMS), 1 + random.nextInt(10));
            warehouse.take(line.item, line.quantity);
            order.lines.add(line);
        }
        district.add(order);
        return new Result(kind, order.cents(), order.cents() + " cents, " + order.document().length() + " characters");
    }

    private Result payment(Kind kind, Customer customer) {
        long cents = 100 + random.nextInt(100_000);
        customer.pay(cents);
        return new Result(kind, cents, cents + " cents, balance " + customer.balanceCents);
    }

    private Result orderStatus(Kind kind, Customer customer) {
        Order order = customer.lastOrder;
        String text = order == null
                ? "none" : (order.delivered ? "delivered " : "open ") + order.document().length() + " characters";
        return new Result(kind, 0, text);
    }

    private Result delivery(Kind kind) {
        long cents = 0;
        for (District district : warehouse.districts) {
            Order order = district.deliver();
            cents += order == null ? 0 : order.cents();
        }
        return new Result(kind, cents, cents + " cents");
    }

    private Result stockLevel(Kind kind, District district) {
        int level = 10 + random.nextInt(30);
        Set<Integer> low = new HashSet<>();
        for (Order order : district.open) {
            for (Order.Line line : order.lines) {
                if (warehouse.stock(line.item) < level) {
                    low.add(line.item);
                }
            }
        }
        return new Result(kind, 0, low.size() + " items below " + level);
    }

    private Result customerReport(Kind kind, Customer customer) {
        return new Result(kind, 0, "balance " + customer.balanceCents + ", paid " + customer.lastPaymentsCents());
    }
}
