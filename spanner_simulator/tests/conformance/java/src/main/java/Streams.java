import com.google.cloud.Timestamp;
import com.google.cloud.spanner.ErrorCode;
import com.google.cloud.spanner.Key;
import com.google.cloud.spanner.Mutation;
import com.google.cloud.spanner.Options;
import com.google.cloud.spanner.Statement;
import com.google.cloud.spanner.Struct;
import com.google.cloud.spanner.Type;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.IntStream;

/** Change streams of a GoogleSQL database. */
final class Streams {

  private static final String SQL =
      "SELECT ChangeRecord FROM READ_Changes(start_timestamp => @start, end_timestamp => @end, "
          + "partition_token => @token, heartbeat_milliseconds => @heartbeat)";

  static final Map<String, Main.Check> CHECKS = new LinkedHashMap<>();

  static {
    CHECKS.put("stream_initial", Streams::streamInitial);
    CHECKS.put("stream_data", Streams::streamData);
    CHECKS.put("stream_heartbeats", Streams::streamHeartbeats);
    CHECKS.put("stream_split", Streams::streamSplit);
    CHECKS.put("stream_resume", Streams::streamResume);
    CHECKS.put("stream_tag", Streams::streamTag);
    CHECKS.put("stream_errors", Streams::streamErrors);
  }

  /** What becomes of one change, an object with arrays of the three kinds; false ends the query. */
  interface Reader {
    boolean change(JsonObject change) throws Exception;
  }

  /** How to send one change stream query; token and end may be null. */
  interface Query {
    void read(String token, Timestamp start, Timestamp end, Reader reader) throws Exception;
  }

  /** What following a stream has found. */
  record Followed(List<JsonObject> data, int tokens, List<Timestamp> heartbeats) {}

  static Query changes(Main.Databases d) {
    return (token, start, end, reader) -> {
      Statement statement = Statement.newBuilder(SQL).bind("start").to(start).bind("end").to(end)
          .bind("token").to(token).bind("heartbeat").to(1000).build();
      try (var rows = d.google.singleUse().executeQuery(statement)) {
        while (rows.next()) {
          for (Struct change : rows.getStructList(0)) {
            if (!reader.change(named(change))) {
              return;
            }
          }
        }
      }
    };
  }

  /** The fields of structs by name, at all depths. */
  private static JsonObject named(Struct struct) {
    JsonObject found = new JsonObject();
    for (var field : struct.getType().getStructFields()) {
      String name = field.getName();
      found.add(name, struct.isNull(name) ? JsonNull.INSTANCE : value(struct, name));
    }
    return found;
  }

  private static JsonElement value(Struct struct, String name) {
    switch (struct.getColumnType(name).getCode()) {
      case BOOL:
        return new JsonPrimitive(struct.getBoolean(name));
      case INT64:
        return new JsonPrimitive(struct.getLong(name));
      case TIMESTAMP:
        return new JsonPrimitive(struct.getTimestamp(name).toString());
      case JSON:
        return JsonParser.parseString(struct.getJson(name));
      case ARRAY:
        JsonArray all = new JsonArray();
        if (struct.getColumnType(name).getArrayElementType().getCode() == Type.Code.STRUCT) {
          struct.getStructList(name).forEach(one -> all.add(named(one)));
        } else {
          struct.getStringList(name).forEach(all::add);
        }
        return all;
      default:
        return new JsonPrimitive(struct.getString(name));
    }
  }

  /** The records of one kind. */
  static List<JsonObject> records(JsonObject change, String kind) {
    List<JsonObject> found = new ArrayList<>();
    if (change.has(kind)) {
      change.getAsJsonArray(kind).forEach(one -> found.add(one.getAsJsonObject()));
    }
    return found;
  }

  private static Timestamp timestamp(JsonObject record, String name) {
    return Timestamp.parseTimestamp(record.get(name).getAsString().replace("+00:00", "Z"));
  }

  private static List<String> tokens(Query query, Timestamp start) throws Exception {
    List<String> found = new ArrayList<>();
    query.read(null, start, null, change -> {
      JsonObject record = records(change, "child_partitions_record").get(0);
      return found.add(records(record, "child_partitions").get(0).get("token").getAsString());
    });
    return found;
  }

  /** Reads from start to end, children after their parents. */
  static Followed follow(Query query, Timestamp start, Timestamp end) throws Exception {
    Followed found = new Followed(new ArrayList<>(), 0, new ArrayList<>());
    Map<String, Timestamp> starts = new LinkedHashMap<>();
    Map<String, Set<String>> parents = new LinkedHashMap<>();
    Set<String> done = new HashSet<>();
    for (String token : tokens(query, start)) {
      starts.put(token, start);
      parents.put(token, Set.of());
    }
    while (!starts.isEmpty()) {
      String token = starts.keySet().stream()
          .filter(one -> done.containsAll(parents.get(one))).findFirst().orElseThrow();
      query.read(token, starts.get(token), end, change -> {
        found.data.addAll(records(change, "data_change_record"));
        records(change, "heartbeat_record").forEach(one -> found.heartbeats.add(timestamp(one, "timestamp")));
        for (JsonObject record : records(change, "child_partitions_record")) {
          Timestamp childStart = timestamp(record, "start_timestamp");
          for (JsonObject child : records(record, "child_partitions")) {
            String name = child.get("token").getAsString();
            if (!done.contains(name) && childStart.compareTo(end) <= 0) {
              Set<String> of = new TreeSet<>();
              child.getAsJsonArray("parent_partition_tokens").forEach(one -> of.add(one.getAsString()));
              starts.put(name, childStart);
              parents.put(name, of);
            }
          }
        }
        return true;
      });
      starts.remove(token);
      done.add(token);
    }
    return new Followed(found.data, done.size(), found.heartbeats);
  }

  private static Mutation account(long id, Long balance, String owner) {
    return Mutation.newInsertBuilder("Accounts").set("Id").to(id).set("Balance").to(balance)
        .set("Owner").to(owner).build();
  }

  private static Mutation balance(long id, long balance) {
    return Mutation.newUpdateBuilder("Accounts").set("Id").to(id).set("Balance").to(balance).build();
  }

  static String streamInitial(Main.Databases d) throws Exception {
    Timestamp start = Rows.write(d, account(1, 100L, "initial"));
    Set<String> seen = new HashSet<>();
    int[] number = {0};
    changes(d).read(null, start, null, change -> {
      Main.equal("[] []", change.get("data_change_record") + " " + change.get("heartbeat_record"));
      JsonObject record = records(change, "child_partitions_record").get(0);
      JsonObject child = records(record, "child_partitions").get(0);
      Main.equal(start, timestamp(record, "start_timestamp"));
      Main.equal(String.format("%08d", number[0]++), record.get("record_sequence").getAsString());
      Main.equal("[]", child.get("parent_partition_tokens").toString());
      return seen.add(child.get("token").getAsString());
    });
    Main.equal(true, seen.size() == number[0] && number[0] > 0);
    return "";
  }

  static String streamData(Main.Databases d) throws Exception {
    Timestamp start = Rows.write(d, account(10, 1L, "a"), account(11, null, null));
    Rows.write(d, balance(10, 2));
    Timestamp last = Rows.write(d, Mutation.delete("Accounts", Key.of(11)));
    List<JsonObject> found = follow(changes(d), start, last).data;
    found.sort(Comparator.comparing((JsonObject one) -> timestamp(one, "commit_timestamp"))
        .thenComparing(one -> one.get("record_sequence").getAsString()));
    List<String> mods = new ArrayList<>();
    for (JsonObject record : found) {
      record.getAsJsonArray("mods").forEach(mod -> mods.add(record.get("mod_type").getAsString() + " " + mod));
    }
    Main.equal(List.of(
        "INSERT {\"keys\":{\"Id\":\"10\"},\"new_values\":{\"Balance\":\"1\",\"Owner\":\"a\"},\"old_values\":{}}",
        "INSERT {\"keys\":{\"Id\":\"11\"},\"new_values\":{\"Balance\":null,\"Owner\":null},\"old_values\":{}}",
        "UPDATE {\"keys\":{\"Id\":\"10\"},\"new_values\":{\"Balance\":\"2\"},\"old_values\":{\"Balance\":\"1\"}}",
        "DELETE {\"keys\":{\"Id\":\"11\"},\"new_values\":{},\"old_values\":{\"Balance\":null,\"Owner\":null}}"), mods);
    Main.equal(
        "[{\"name\":\"Id\",\"type\":{\"code\":\"INT64\"},\"is_primary_key\":true,\"ordinal_position\":1},"
            + "{\"name\":\"Balance\",\"type\":{\"code\":\"INT64\"},\"is_primary_key\":false,\"ordinal_position\":2},"
            + "{\"name\":\"Owner\",\"type\":{\"code\":\"STRING\"},\"is_primary_key\":false,\"ordinal_position\":3}]",
        found.get(0).get("column_types").toString());
    Main.equal("Accounts OLD_AND_NEW_VALUES", found.get(0).get("table_name").getAsString() + " "
        + found.get(0).get("value_capture_type").getAsString());
    Main.equal(List.of(start, last), List.of(timestamp(found.get(0), "commit_timestamp"),
        timestamp(found.get(found.size() - 1), "commit_timestamp")));
    return "";
  }

  static String streamHeartbeats(Main.Databases d) throws Exception {
    Timestamp start = Rows.write(d, account(20, 1L, "a"));
    Timestamp end = Timestamp.ofTimeSecondsAndNanos(start.getSeconds() + 4, start.getNanos());
    List<Timestamp> beats = follow(changes(d), start, end).heartbeats;
    Main.equal(true, beats.stream().allMatch(one -> one.compareTo(start) >= 0 && one.compareTo(end) <= 0));
    Main.equal(true, beats.size() >= 2);
    return beats.size() + " heartbeats";
  }

  static String streamSplit(Main.Databases d) throws Exception {
    Timestamp start = Rows.write(d, IntStream.range(1000, 1020)
        .mapToObj(id -> account(id, 0L, "split")).toArray(Mutation[]::new));
    Timestamp last = start;
    for (int number : new int[] {1, 2}) {
      Main.control("split", Map.of("database", Rows.GOOGLE, "stream", "Changes"));
      last = Rows.write(d, IntStream.range(1000, 1020)
          .mapToObj(id -> balance(id, number)).toArray(Mutation[]::new));
    }
    Followed found = follow(changes(d), start, last);
    Map<String, List<String>> seen = new TreeMap<>();
    for (JsonObject record : found.data) {
      records(record, "mods").forEach(mod -> seen
          .computeIfAbsent(mod.getAsJsonObject("keys").get("Id").getAsString(), id -> new ArrayList<>())
          .add(mod.getAsJsonObject("new_values").get("Balance").getAsString()));
    }
    Map<String, List<String>> expected = new TreeMap<>();
    IntStream.range(1000, 1020).forEach(id -> expected.put(String.valueOf(id), List.of("0", "1", "2")));
    Main.equal(expected, seen);
    Main.equal(true, found.tokens >= 3);
    return found.tokens + " stream partitions";
  }

  static String streamResume(Main.Databases d) throws Exception {
    Timestamp start = Rows.write(d, account(30, 0L, "resume"));
    Query query = changes(d);
    String[] token = {null};
    for (String one : tokens(query, start)) {
      query.read(one, start, start, change -> {
        token[0] = records(change, "data_change_record").isEmpty() ? token[0] : one;
        return true;
      });
    }
    Map<String, Object> interrupt = Map.of("database", Rows.GOOGLE, "stream", "Changes", "token", token[0]);
    List<String> seen = new ArrayList<>();
    int[] interrupted = {0};
    query.read(token[0], start, null, change -> {
      var data = records(change, "data_change_record");
      data.forEach(record -> records(record, "mods").forEach(
          mod -> seen.add(mod.getAsJsonObject("new_values").get("Balance").getAsString())));
      if (seen.size() >= 20) {
        return false;
      }
      if (!data.isEmpty()) {
        interrupted[0] += Main.control("interrupt", interrupt).get("interrupted").getAsInt();
        Rows.write(d, balance(30, seen.size()));
      }
      return true;
    });
    Main.equal(IntStream.range(0, 20).mapToObj(String::valueOf).toList(), seen);
    Main.equal(true, interrupted[0] > 0);
    return interrupted[0] + " interruptions";
  }

  static String streamTag(Main.Databases d) throws Exception {
    var runner = d.google.readWriteTransaction(Options.tag("conformance"));
    runner.run(t -> {
      t.buffer(account(40, 1L, "tagged"));
      return null;
    });
    Timestamp last = Rows.write(d, account(41, 1L, "untagged"));
    Map<String, String> tags = new TreeMap<>();
    follow(changes(d), runner.getCommitTimestamp(), last).data.forEach(record -> tags.put(
        records(record, "mods").get(0).getAsJsonObject("keys").get("Id").getAsString(),
        record.get("transaction_tag").getAsString()));
    Main.equal(Map.of("40", "conformance", "41", ""), tags);
    return "";
  }

  static String streamErrors(Main.Databases d) throws Exception {
    Timestamp start = Rows.write(d, account(50, 1L, "errors"));
    Query query = changes(d);
    Timestamp past = Timestamp.parseTimestamp("2020-01-01T00:00:00Z");
    Main.failsWith(ErrorCode.OUT_OF_RANGE, () -> query.read(null, past, null, change -> true));
    Main.failsWith(ErrorCode.INVALID_ARGUMENT, () -> query.read("nonsense", start, null, change -> true));
    Main.failsWith(ErrorCode.INVALID_ARGUMENT, () -> query.read(null, null, null, change -> true));
    return "";
  }

  private Streams() {}
}
