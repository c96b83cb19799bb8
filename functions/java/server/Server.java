package squeezy.server;

import com.google.gson.JsonObject;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;

/**
 * OpenWhisk's action interface over HTTP: POST /init once, then POST /run, one at a time.
 *
 * <p>The function is in the image (what OpenWhisk calls a blackbox action), so /init takes no code.
 */
public final class Server {
    /** OpenWhisk cuts the logs of activations apart at this line. */
    private static final String END_OF_ACTIVATION = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX";

    private final String className;
    private final boolean eager;
    private Action action;

    private Server(String className, boolean eager) {
        this.className = className;
        this.eager = eager;
    }

    public static void main(String[] arguments) {
        if (arguments.length != 1) {
            fail("usage: Server CLASS, with PORT (8080) and EAGER_GC (0 or 1) in the environment");
        }
        if (ModuleLayer.boot().findModule("jdk.httpserver").isEmpty()) {
            fail("this Java runtime lacks the module jdk.httpserver: take one that was not cut down");
        }
        // Of the JDK's server, in seconds: for a request's head and body, and for a run with its answer.
        System.setProperty("sun.net.httpserver.maxReqTime", "30");
        System.setProperty("sun.net.httpserver.maxRspTime", "900");
        // It writes head and body apart: without this the second waits for the client's acknowledgement.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        Server server = new Server(arguments[0], "1".equals(System.getenv("EAGER_GC")));
        // Without an executor of its own it serves in one thread: OpenWhisk never runs an action twice at a time.
        int port = port();
        try {
            HttpServer http = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
            http.createContext("/", server::handle);
            http.start();
        } catch (IOException error) {
            fail("cannot listen on port " + port + ": " + error.getMessage() + "; set PORT to another one");
        }
    }

    private static void fail(String message) {
        System.err.println("Server: " + message);
        System.exit(2);
    }

    private static int port() {
        String text = System.getenv().getOrDefault("PORT", "8080");
        try {
            int port = Integer.parseInt(text);
            if (port >= 1 && port <= 65535) {
                return port;
            }
        } catch (NumberFormatException error) {
            // Not a number.
        }
        fail("PORT has to be 1 to 65535, not '" + text + "'");
        throw new AssertionError();
    }

    private void handle(HttpExchange exchange) throws IOException {
        try {
            String route = exchange.getRequestMethod() + " " + exchange.getRequestURI();
            int status = 200;
            byte[] answer;
            try {
                answer = bytes(answer(route, exchange));
            } catch (Refused refused) {
                status = refused.status;
                JsonObject error = new JsonObject();
                error.addProperty("error", refused.getMessage());
                answer = bytes(error);
            }
            if (eager && route.equals("POST /run")) {
                System.gc();
            }
            exchange.getResponseHeaders().set("Content-Type", "application/json");
            exchange.sendResponseHeaders(status, answer.length);
            exchange.getResponseBody().write(answer);
        } finally {
            exchange.close();
        }
    }

    private JsonObject answer(String route, HttpExchange exchange) throws IOException, Refused {
        switch (route) {
            case "POST /init":
                return init(Body.value(exchange.getRequestBody()));
            case "POST /run":
                try {
                    return run(Body.value(exchange.getRequestBody()));
                } finally {
                    System.out.println(END_OF_ACTIVATION);
                    System.err.println(END_OF_ACTIVATION);
                }
            default:
                throw new Refused(404, "There is POST /init and POST /run.");
        }
    }

    private JsonObject init(JsonObject value) throws Refused {
        if (action != null) {
            throw new Refused(403, "Cannot initialize the action more than once.");
        }
        if (value.has("code") && !value.get("code").toString().equals("\"\"")) {
            throw new Refused(400, "This image holds its function: /init takes no code.");
        }
        action = new Action(className, Server.class.getClassLoader());
        JsonObject answer = new JsonObject();
        answer.addProperty("ok", true);
        return answer;
    }

    private JsonObject run(JsonObject value) throws Refused {
        if (action == null) {
            throw new Refused(409, "POST /init comes before POST /run.");
        }
        return action.run(value);
    }

    private static byte[] bytes(JsonObject object) {
        return object.toString().getBytes(StandardCharsets.UTF_8);
    }
}
