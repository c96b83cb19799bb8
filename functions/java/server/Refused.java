package squeezy.server;

/** A request that is not carried out, with the HTTP status that says so. */
final class Refused extends Exception {
    private static final long serialVersionUID = 1;

    final int status;

    Refused(int status, String message) {
        super(message);
        this.status = status;
    }
}
