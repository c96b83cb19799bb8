package squeezy.functions;

import java.util.ArrayList;
import java.util.List;

/** A customer's order. */
final class Order {
    final Customer customer;
    final List<Line> lines = new ArrayList<>();
    boolean delivered;

    static final class Line {
        final int item;
        final int quantity;
        final long cents;

        Line(int item, int quantity) {
            this.item = item;
            this.quantity = quantity;
            cents = Company.price(item) * quantity;
        }
    }

    Order(Customer customer) {
        this.customer = customer;
    }

    long cents() {
        return lines.stream().mapToLong(line -> line.cents).sum();
    }

    /** As the customer gets it. */
    String document() {
        StringBuilder text = new StringBuilder("<order customer=\"").append(customer.name).append("\">\n");
        for (Line line : lines) {
            text.append("  <line item=\"").append(line.item).append("\" quantity=\"").append(line.quantity);
            text.append("\" cents=\"").append(line.cents).append("\"/>\n");
        }
        return text.append("</order>\n").toString();
    }
}
