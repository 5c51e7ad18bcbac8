import com.google.cloud.spanner.BatchClient;
import com.google.cloud.spanner.DatabaseClient;
import com.google.cloud.spanner.ErrorCode;
import com.google.cloud.spanner.ResultSet;
import com.google.cloud.spanner.Spanner;
import com.google.cloud.spanner.SpannerException;
import com.google.cloud.spanner.SpannerOptions;
import com.google.cloud.spanner.StructReader;
import com.google.cloud.spanner.Type;
import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.PrintStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** The checks of ../README.md by the official Java client: a JSON line for each. */
final class Main {
  private static final long CHECK_TIMEOUT_S = 120;

  /** One check; what it returns is what it has to say though it passed. */
  interface Check {
    String walk(Databases d) throws Exception;
  }

  /** The clients, and what the first checks create. */
  static final class Databases {
    Spanner spanner;
    DatabaseClient google;
    DatabaseClient postgres;
    BatchClient batch;
  }

  public static void main(String[] arguments) {
    Databases d = new Databases();
    d.spanner = SpannerOptions.newBuilder().setProjectId("conformance").build().getService();
    Map<String, Check> checks = new LinkedHashMap<>();
    checks.putAll(Rows.CHECKS);
    checks.putAll(Transactions.CHECKS);
    checks.putAll(Streams.CHECKS);
    checks.putAll(Postgres.CHECKS);
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    checks.forEach((name, check) -> out.println(outcome(d, name, check)));
    // The client's background work is not waited for.
    Runtime.getRuntime().halt(0);
  }

  private static JsonObject outcome(Databases d, String name, Check check) {
    JsonObject line = new JsonObject();
    line.addProperty("check", name);
    var worker = Executors.newSingleThreadExecutor();
    try {
      String detail = worker.submit(() -> check.walk(d)).get(CHECK_TIMEOUT_S, TimeUnit.SECONDS);
      line.addProperty("ok", true);
      line.addProperty("detail", Objects.requireNonNullElse(detail, ""));
    } catch (Exception failure) {
      Throwable cause = failure.getCause() == null ? failure : failure.getCause();
      line.addProperty("ok", false);
      line.addProperty("detail", cause + place(cause));
    }
    worker.shutdownNow();
    return line;
  }

  /** The line of this program that failed. */
  private static String place(Throwable failure) {
    return Arrays.stream(failure.getStackTrace())
        .filter(at -> !at.getClassName().contains(".") && !at.getClassName().startsWith("Main"))
        .findFirst()
        .map(at -> " at " + at.getFileName() + ":" + at.getLineNumber())
        .orElse("");
  }

  static void equal(Object expected, Object found) {
    if (!Objects.equals(expected, found)) {
      throw new AssertionError("expected " + cut(expected) + ", found " + cut(found));
    }
  }

  private static String cut(Object what) {
    String text = String.valueOf(what);
    return text.length() > 250 ? text.substring(0, 250) + "…" : text;
  }

  /** What may fail. */
  interface Act {
    void run() throws Exception;
  }

  /** The message of the error with this code that must come. */
  static String failsWith(ErrorCode code, Act act) throws Exception {
    try {
      act.run();
    } catch (SpannerException error) {
      equal(code + " in " + error.getMessage(), error.getErrorCode() + " in " + error.getMessage());
      return error.getMessage();
    }
    throw new AssertionError(code + " was due, and nothing went wrong");
  }

  /** Rows as text: columns with commas between, rows with "; " between. */
  static String rows(ResultSet found) {
    List<String> all = new ArrayList<>();
    try (found) {
      while (found.next()) {
        all.add(row(found));
      }
    }
    return String.join("; ", all);
  }

  static String row(StructReader row) {
    List<String> columns = new ArrayList<>();
    for (int index = 0; index < row.getColumnCount(); index++) {
      columns.add(column(row, index));
    }
    return String.join(",", columns);
  }

  private static String column(StructReader row, int index) {
    if (row.isNull(index)) {
      return "NULL";
    }
    Type type = row.getColumnType(index);
    if (type.getCode() == Type.Code.STRING) {
      // A Value would shorten a long one.
      return row.getString(index);
    }
    if (type.getCode() == Type.Code.BYTES) {
      return row.getBytes(index).toBase64();
    }
    if (type.getCode() == Type.Code.ARRAY) {
      switch (type.getArrayElementType().getCode()) {
        case BYTES:
          return "[" + row.getBytesList(index).stream()
              .map(one -> one == null ? "NULL" : one.toBase64()).collect(Collectors.joining(",")) + "]";
        default:
          break;
      }
    }
    return row.getValue(index).toString();
  }

  /** The DDL of one of the shared schemas. */
  static List<String> statements(String name) throws Exception {
    String text = Files.readString(Path.of(System.getenv("CONFORMANCE_SCHEMA"), name));
    return Arrays.stream(text.split(";")).map(String::strip).filter(one -> !one.isEmpty()).toList();
  }

  /** The answer to one verb of the simulator's control port. */
  static JsonObject control(String verb, Map<String, Object> body) throws Exception {
    String address = System.getenv("CONFORMANCE_CONTROL");
    HttpRequest request = HttpRequest.newBuilder(URI.create("http://" + address + "/" + verb))
        .POST(HttpRequest.BodyPublishers.ofString(new Gson().toJson(body))).build();
    HttpResponse<String> answer =
        HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    equal(200, answer.statusCode());
    return new Gson().fromJson(answer.body(), JsonObject.class);
  }
}
