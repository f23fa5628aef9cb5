import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** What a Java program of the tier needs: where the brokers are, how to report a test, how to kill a broker. */
public final class Tier {
    public static final String BOOTSTRAP = System.getenv("STRANGERS_BOOTSTRAP");
    public static final int BROKERS = Integer.parseInt(System.getenv("STRANGERS_BROKERS"));
    public static final short REPLICAS = (short) BROKERS;
    /** Written before the name of each test. */
    public static String prefix = "";
    /** How long a test may take on a slow machine. */
    public static long timeoutS = 240;

    public interface Check {
        void run() throws Exception;
    }

    private Tier() {}

    /** Runs a test and reports it; it goes on after a failure. */
    public static void test(String name, Check check) {
        long started = System.nanoTime();
        CompletableFuture<Void> done = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                check.run();
                done.complete(null);
            } catch (Throwable failure) {
                done.completeExceptionally(failure);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        Throwable failure = null;
        try {
            done.get(timeoutS, TimeUnit.SECONDS);
        } catch (TimeoutException late) {
            StringWriter where = new StringWriter();
            for (StackTraceElement each : thread.getStackTrace()) {
                where.append(" < ").append(each.toString());
            }
            failure = new TimeoutException("not done after " + timeoutS + " s:" + where);
        } catch (Exception wrapped) {
            failure = wrapped.getCause() == null ? wrapped : wrapped.getCause();
        }
        if (failure != null) {
            failure.printStackTrace();
        }
        System.err.printf("%s%s: %d ms%n", prefix, name, (System.nanoTime() - started) / 1_000_000);
        report(name, failure == null ? "passed" : "failed", failure == null ? "" : words(failure));
    }

    static String words(Throwable failure) {
        Throwable cause = failure;
        while (cause instanceof java.util.concurrent.ExecutionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause.getClass().getSimpleName() + ": " + cause.getMessage();
    }

    public static synchronized void report(String test, String outcome, String message) {
        String cut = message.length() > 400 ? message.substring(0, 400) : message;
        String line = String.format(
            "{\"test\": \"%s\", \"outcome\": \"%s\", \"message\": \"%s\"}%n", quoted(prefix + test), outcome, quoted(cut));
        try {
            Files.write(
                Path.of(System.getenv("STRANGERS_RESULTS")), line.getBytes(StandardCharsets.UTF_8),
                StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (java.io.IOException failure) {
            throw new java.io.UncheckedIOException(failure);
        }
        System.out.print(line);
    }

    static String quoted(String text) {
        return text.replaceAll("\\p{Cntrl}+", " ").replace("\\", "\\\\").replace("\"", "\\\"");
    }

    /** Has a broker killed, stopped, started or restarted; returns when that is done. */
    public static void broker(String what, int index) throws Exception {
        String[] place = System.getenv("STRANGERS_CONTROL").split(":");
        try (Socket socket = new Socket(place[0], Integer.parseInt(place[1]))) {
            socket.getOutputStream().write((what + " " + index + "\n").getBytes(StandardCharsets.UTF_8));
            String answer = new BufferedReader(new InputStreamReader(socket.getInputStream())).readLine();
            require("ok".equals(answer), what + " " + index + ": " + answer);
        }
    }

    /** SIGKILL for a broker, which starts again on its data a second later. */
    public static void killAndStart(int index) throws Exception {
        broker("kill", index % BROKERS);
        Thread.sleep(1000);
        broker("start", index % BROKERS);
    }

    public static void require(boolean holds, String message) {
        if (!holds) {
            throw new AssertionError(message);
        }
    }

    /** Every expected value once and in this order, or an error that says what is lost, doubled or out of order. */
    public static void requireExact(List<String> expected, List<String> found, String where) {
        if (expected.equals(found)) {
            return;
        }
        Map<String, Integer> counts = new HashMap<>();
        found.forEach(each -> counts.merge(each, 1, Integer::sum));
        List<String> lost = new ArrayList<>();
        List<String> twice = new ArrayList<>();
        for (String each : expected) {
            int count = counts.getOrDefault(each, 0);
            counts.remove(each);
            if (count == 0) {
                lost.add(each);
            } else if (count > 1) {
                twice.add(each);
            }
        }
        throw new AssertionError(String.format(
            "%s: of %d values %d are lost %s, %d are there more than once %s, %d are strange %s%s", where, expected.size(),
            lost.size(), some(lost), twice.size(), some(twice), counts.size(), some(new ArrayList<>(counts.keySet())),
            lost.isEmpty() && twice.isEmpty() && counts.isEmpty() ? "; out of order" : ""));
    }

    static List<String> some(List<String> values) {
        return values.subList(0, Math.min(3, values.size()));
    }

    /** Calls the first of these methods that the class has: names changed between versions. */
    @SuppressWarnings("unchecked")
    public static <T> T call(Object target, String... names) throws Exception {
        for (String name : names) {
            for (java.lang.reflect.Method method : target.getClass().getMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == 0) {
                    method.setAccessible(true);
                    return (T) method.invoke(target);
                }
            }
        }
        throw new NoSuchMethodException(target.getClass() + " has none of " + Arrays.toString(names));
    }
}
