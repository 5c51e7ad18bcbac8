import com.google.cloud.ByteArray;
import com.google.cloud.Date;
import com.google.cloud.Timestamp;
import com.google.cloud.spanner.DatabaseId;
import com.google.cloud.spanner.Dialect;
import com.google.cloud.spanner.ErrorCode;
import com.google.cloud.spanner.Key;
import com.google.cloud.spanner.KeySet;
import com.google.cloud.spanner.Mutation;
import com.google.cloud.spanner.Statement;
import com.google.cloud.spanner.Value;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A database of the PostgreSQL dialect, and the end of both databases. */
final class Postgres {
  private static final String POSTGRES = "java-postgres";
  private static final DatabaseId POSTGRES_ID = DatabaseId.of("conformance", Rows.INSTANCE, POSTGRES);

  static final Map<String, Main.Check> CHECKS = new LinkedHashMap<>();

  static {
    CHECKS.put("pg_database_created", Postgres::databaseCreated);
    CHECKS.put("pg_types", Postgres::types);
    CHECKS.put("pg_query", Postgres::query);
    CHECKS.put("pg_stream", Postgres::stream);
    CHECKS.put("database_dropped", Postgres::databaseDropped);
  }

  static String databaseCreated(Main.Databases d) throws Exception {
    var admin = d.spanner.getDatabaseAdminClient();
    admin.createDatabase(admin.newDatabaseBuilder(POSTGRES_ID).setDialect(Dialect.POSTGRESQL).build(), List.of())
        .get();
    Rows.changeDdl(d, POSTGRES, Main.statements("postgres.sql"));
    d.postgres = d.spanner.getDatabaseClient(POSTGRES_ID);
    String ddl = String.join("\n", admin.getDatabaseDdl(Rows.INSTANCE, POSTGRES)).toLowerCase();
    for (String part : List.of("create change stream changes", "timestamp with time zone", "include (born)")) {
      Main.equal(part + " true", part + " " + ddl.contains(part));
    }
    Main.equal(Dialect.POSTGRESQL, admin.getDatabase(Rows.INSTANCE, POSTGRES).getDialect());
    return "";
  }

  private static Timestamp write(Main.Databases d, Mutation... all) {
    return d.postgres.write(List.of(all));
  }

  private static Mutation.WriteBuilder insert(String table) {
    return Mutation.newInsertBuilder(table);
  }

  static String types(Main.Databases d) {
    List<String> columns =
        List.of("id", "bool", "int", "float4", "float8", "num", "str", "byt", "dat", "tim", "jso");
    write(d,
        insert("scalars").set("id").to(1).set("bool").to(true).set("int").to(-42).set("float4").to(0.5f)
            .set("float8").to(0.1).set("num").to(Value.pgNumeric("-12.3450")).set("str").to("grüße 🌍")
            .set("byt").to(ByteArray.copyFrom(new byte[] {'h', 'e', 'l', 'l', 'o', 0, 1}))
            .set("dat").to(Date.fromYearMonthDay(2024, 2, 29))
            .set("tim").to(Timestamp.parseTimestamp("2024-02-29T12:34:56.123456Z"))
            .set("jso").to(Value.pgJsonb("{\"a\":[1,null,\"x\"],\"b\":{}}")).build(),
        insert("scalars").set("id").to(2).build(),
        insert("scalars").set("id").to(3).set("num").to(Value.pgNumeric("NaN"))
            .set("float8").to(Double.POSITIVE_INFINITY).build());
    KeySet keys = KeySet.newBuilder().addKey(Key.of(1)).addKey(Key.of(2)).build();
    Main.equal(
        "1,true,-42,0.5,0.1,-12.3450,grüße 🌍,aGVsbG8AAQ==,2024-02-29,2024-02-29T12:34:56.123456000Z,"
            + "{\"a\": [1, null, \"x\"], \"b\": {}}; 2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL",
        Main.rows(d.postgres.singleUse().read("scalars", keys, columns)));
    Main.equal("NaN,Infinity", Main.rows(d.postgres.singleUse().executeQuery(
        Statement.of("SELECT num, float8 FROM scalars WHERE id = 3"))));
    return "";
  }

  static String query(Main.Databases d) {
    write(d,
        insert("singers").set("singerid").to(1).set("name").to("first").build(),
        insert("singers").set("singerid").to(2).set("name").to("second").build(),
        insert("singers").set("singerid").to(3).set("name").to("third").build(),
        insert("albums").set("singerid").to(1).set("albumid").to(1).set("price").to(10).build(),
        insert("albums").set("singerid").to(1).set("albumid").to(2).set("price").to(20).build());
    Main.equal("first,2,30; second,0,NULL", Main.rows(d.postgres.singleUse().executeQuery(Statement.newBuilder(
        "SELECT s.name, count(a.albumid) AS n, sum(a.price) FROM singers s "
            + "LEFT JOIN albums a ON a.singerid = s.singerid WHERE s.name >= $1 AND s.singerid = ANY($2) "
            + "GROUP BY s.name ORDER BY s.name LIMIT $3")
        .bind("p1").to("a").bind("p2").toInt64Array(new long[] {1, 2}).bind("p3").to(5).build())));
    Main.equal("third,3", Main.rows(d.postgres.singleUse().readUsingIndex(
        "singers", "singersbyname", KeySet.singleKey(Key.of("third")), List.of("name", "singerid"))));
    return "";
  }

  private static Streams.Query changes(Main.Databases d) {
    return (token, start, end, reader) -> {
      Statement statement = Statement.newBuilder(
          "SELECT * FROM spanner.read_json_changes($1, $2, $3, $4, null)")
          .bind("p1").to(start).bind("p2").to(end).bind("p3").to(token).bind("p4").to(1000).build();
      try (var rows = d.postgres.singleUse().executeQuery(statement)) {
        while (rows.next()) {
          // One object where a row of GoogleSQL has an array of one.
          JsonObject change = new JsonObject();
          JsonParser.parseString(rows.getPgJsonb(0)).getAsJsonObject().entrySet().forEach(one -> {
            JsonArray records = new JsonArray();
            records.add(one.getValue());
            change.add(one.getKey(), records);
          });
          if (!reader.change(change)) {
            return;
          }
        }
      }
    };
  }

  static String stream(Main.Databases d) throws Exception {
    Timestamp start = write(d,
        insert("accounts").set("id").to(1).set("balance").to(7).set("owner").to("a").build());
    Timestamp last = write(d, Mutation.delete("accounts", Key.of(1)));
    List<String> mods = new ArrayList<>();
    for (JsonObject record : Streams.follow(changes(d), start, last).data()) {
      Main.equal(1, record.get("number_of_records_in_transaction").getAsInt());
      record.getAsJsonArray("mods").forEach(mod -> mods.add(record.get("mod_type").getAsString() + " " + mod));
    }
    Main.equal(List.of(
        "INSERT {\"keys\":{\"id\":\"1\"},\"new_values\":{\"balance\":\"7\",\"owner\":\"a\"},\"old_values\":{}}",
        "DELETE {\"keys\":{\"id\":\"1\"},\"new_values\":{},\"old_values\":{\"balance\":\"7\",\"owner\":\"a\"}}"),
        mods);
    return "";
  }

  static String databaseDropped(Main.Databases d) throws Exception {
    var admin = d.spanner.getDatabaseAdminClient();
    for (String name : List.of(Rows.GOOGLE, POSTGRES)) {
      admin.dropDatabase(Rows.INSTANCE, name);
      Main.failsWith(ErrorCode.NOT_FOUND, () -> admin.getDatabase(Rows.INSTANCE, name));
    }
    d.spanner.getInstanceAdminClient().deleteInstance(Rows.INSTANCE);
    Main.failsWith(ErrorCode.NOT_FOUND, () -> d.spanner.getInstanceAdminClient().getInstance(Rows.INSTANCE));
    return "";
  }

  private Postgres() {}
}
