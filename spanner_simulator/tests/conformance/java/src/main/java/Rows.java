import com.google.api.gax.core.NoCredentialsProvider;
import com.google.api.gax.grpc.InstantiatingGrpcChannelProvider;
import com.google.cloud.ByteArray;
import com.google.cloud.Date;
import com.google.cloud.Timestamp;
import com.google.cloud.spanner.DatabaseId;
import com.google.cloud.spanner.DatabaseInfo;
import com.google.cloud.spanner.ErrorCode;
import com.google.cloud.spanner.InstanceConfigId;
import com.google.cloud.spanner.InstanceId;
import com.google.cloud.spanner.InstanceInfo;
import com.google.cloud.spanner.Key;
import com.google.cloud.spanner.KeyRange;
import com.google.cloud.spanner.KeySet;
import com.google.cloud.spanner.Mutation;
import com.google.cloud.spanner.MutationGroup;
import com.google.cloud.spanner.Options;
import com.google.cloud.spanner.Statement;
import com.google.cloud.spanner.Value;
import com.google.cloud.spanner.v1.SpannerClient;
import com.google.cloud.spanner.v1.SpannerSettings;
import com.google.protobuf.ListValue;
import com.google.spanner.v1.BatchWriteResponse;
import com.google.spanner.v1.BeginTransactionRequest;
import com.google.spanner.v1.CommitRequest;
import com.google.spanner.v1.CreateSessionRequest;
import com.google.spanner.v1.Session;
import com.google.spanner.v1.TransactionOptions;
import io.grpc.ManagedChannelBuilder;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.StreamSupport;

/** Administration, mutations, types, reads and large values. */
final class Rows {
  static final String INSTANCE = "conformance-java";
  static final String GOOGLE = "java-google";
  private static final InstanceId INSTANCE_ID = InstanceId.of("conformance", INSTANCE);
  private static final DatabaseId GOOGLE_ID = DatabaseId.of(INSTANCE_ID, GOOGLE);

  static final Map<String, Main.Check> CHECKS = new LinkedHashMap<>();

  static {
    CHECKS.put("instance_created", Rows::instanceCreated);
    CHECKS.put("database_created", Rows::databaseCreated);
    CHECKS.put("ddl_changed", Rows::ddlChanged);
    CHECKS.put("session_multiplexed", Rows::sessionMultiplexed);
    CHECKS.put("mutations", Rows::mutations);
    CHECKS.put("mutation_errors", Rows::mutationErrors);
    CHECKS.put("commit_timestamp", Rows::commitTimestamp);
    CHECKS.put("batch_write", Rows::batchWrite);
    CHECKS.put("types_scalar", Rows::typesScalar);
    CHECKS.put("types_extreme", Rows::typesExtreme);
    CHECKS.put("types_array", Rows::typesArray);
    CHECKS.put("types_parameter", Rows::typesParameter);
    CHECKS.put("read_ranges", Rows::readRanges);
    CHECKS.put("read_index", Rows::readIndex);
    CHECKS.put("large_value", Rows::largeValue);
    CHECKS.put("large_result", Rows::largeResult);
  }

  static String instanceCreated(Main.Databases d) throws Exception {
    var admin = d.spanner.getInstanceAdminClient();
    admin.createInstance(InstanceInfo.newBuilder(INSTANCE_ID)
        .setInstanceConfigId(InstanceConfigId.of("conformance", "emulator-config"))
        .setDisplayName("conformance").setNodeCount(1).build()).get();
    var listed = admin.listInstances().iterateAll();
    Main.equal(true, StreamSupport.stream(listed.spliterator(), false)
        .anyMatch(one -> one.getId().getInstance().equals(INSTANCE)));
    return "";
  }

  static String databaseCreated(Main.Databases d) throws Exception {
    var admin = d.spanner.getDatabaseAdminClient();
    admin.createDatabase(INSTANCE, GOOGLE, Main.statements("google.sql")).get();
    Main.equal(DatabaseInfo.State.READY, admin.getDatabase(INSTANCE, GOOGLE).getState());
    d.google = d.spanner.getDatabaseClient(GOOGLE_ID);
    d.batch = d.spanner.getBatchClient(GOOGLE_ID);
    return "";
  }

  static void changeDdl(Main.Databases d, String database, List<String> ddl) throws Exception {
    d.spanner.getDatabaseAdminClient().updateDatabaseDdl(INSTANCE, database, ddl, null).get();
  }

  static String ddlChanged(Main.Databases d) throws Exception {
    changeDdl(d, GOOGLE, List.of("ALTER TABLE Counters ADD COLUMN Note STRING(100)",
        "CREATE INDEX ByNote ON Counters(Note)"));
    Main.equal("Name,STRING(64); Value,INT64; Note,STRING(100)", Main.rows(d.google.singleUse().executeQuery(
        Statement.newBuilder("SELECT COLUMN_NAME, SPANNER_TYPE FROM INFORMATION_SCHEMA.COLUMNS "
            + "WHERE TABLE_NAME = @table ORDER BY ORDINAL_POSITION").bind("table").to("Counters").build())));
    return "";
  }

  static String sessionMultiplexed(Main.Databases d) throws Exception {
    var settings = SpannerSettings.newBuilder()
        .setCredentialsProvider(NoCredentialsProvider.create())
        .setTransportChannelProvider(InstantiatingGrpcChannelProvider.newBuilder()
            .setEndpoint(System.getenv("SPANNER_EMULATOR_HOST"))
            .setChannelConfigurator(ManagedChannelBuilder::usePlaintext).build())
        .build();
    try (SpannerClient api = SpannerClient.create(settings)) {
      Session session = api.createSession(CreateSessionRequest.newBuilder().setDatabase(GOOGLE_ID.getName())
          .setSession(Session.newBuilder().setMultiplexed(true)).build());
      Main.equal(true, session.getMultiplexed());
      var values = ListValue.newBuilder()
          .addValues(com.google.protobuf.Value.newBuilder().setStringValue("multiplexed"))
          .addValues(com.google.protobuf.Value.newBuilder().setStringValue("1"));
      var insert = com.google.spanner.v1.Mutation.newBuilder().setInsert(
          com.google.spanner.v1.Mutation.Write.newBuilder().setTable("Counters")
              .addAllColumns(List.of("Name", "Value")).addValues(values)).build();
      var begun = api.beginTransaction(BeginTransactionRequest.newBuilder().setSession(session.getName())
          .setOptions(TransactionOptions.newBuilder().setReadWrite(TransactionOptions.ReadWrite.getDefaultInstance()))
          .setMutationKey(insert).build());
      var answer = api.commit(CommitRequest.newBuilder().setSession(session.getName())
          .setTransactionId(begun.getId()).addMutations(insert).setPrecommitToken(begun.getPrecommitToken()).build());
      Main.equal(true, answer.hasCommitTimestamp());
    }
    return "";
  }

  static Timestamp write(Main.Databases d, Mutation... all) {
    return d.google.write(List.of(all));
  }

  static KeySet closed(Object first, Object last) {
    return KeySet.range(KeyRange.closedClosed(Key.of(first), Key.of(last)));
  }

  static String read(Main.Databases d, String table, KeySet keys, String... columns) {
    return Main.rows(d.google.singleUse().read(table, keys, List.of(columns)));
  }

  static Mutation singer(Mutation.WriteBuilder builder, long id, String name) {
    return builder.set("SingerId").to(id).set("Name").to(name).build();
  }

  static Mutation album(Mutation.WriteBuilder builder, long singer, long album, String title) {
    return builder.set("SingerId").to(singer).set("AlbumId").to(album).set("Title").to(title).build();
  }

  static Mutation counter(Mutation.WriteBuilder builder, String name, Long value) {
    return builder.set("Name").to(name).set("Value").to(value).build();
  }

  static String mutations(Main.Databases d) {
    Date day = Date.fromYearMonthDay(1970, 1, 1);
    write(d, IntStream.range(100, 106).mapToObj(id -> Mutation.newInsertBuilder("Singers").set("SingerId").to(id)
        .set("Name").to("name " + id).set("Born").to(day).build()).toArray(Mutation[]::new));
    write(d,
        singer(Mutation.newUpdateBuilder("Singers"), 100, "updated"),
        singer(Mutation.newInsertOrUpdateBuilder("Singers"), 101, "upserted"),
        singer(Mutation.newInsertOrUpdateBuilder("Singers"), 110, "new"),
        singer(Mutation.newReplaceBuilder("Singers"), 102, "replaced"),
        Mutation.delete("Singers", Key.of(103)),
        Mutation.delete("Singers", KeySet.range(KeyRange.closedOpen(Key.of(104), Key.of(106)))));
    Main.equal("100,updated,1970-01-01; 101,upserted,1970-01-01; 102,replaced,NULL; 110,new,NULL",
        read(d, "Singers", closed(100, 199), "SingerId", "Name", "Born"));
    return "";
  }

  static String mutationErrors(Main.Databases d) throws Exception {
    Mutation once = counter(Mutation.newInsertBuilder("Counters"), "once", 1L);
    write(d, once);
    Main.failsWith(ErrorCode.ALREADY_EXISTS, () -> write(d, once));
    Main.failsWith(ErrorCode.NOT_FOUND,
        () -> write(d, counter(Mutation.newUpdateBuilder("Counters"), "never", 1L)));
    Main.failsWith(ErrorCode.NOT_FOUND, () -> write(d, counter(Mutation.newInsertBuilder("Nope"), "a", 1L)));
    Main.failsWith(ErrorCode.FAILED_PRECONDITION,
        () -> write(d, counter(Mutation.newInsertBuilder("Counters"), "null value", null)));
    return "";
  }

  static String commitTimestamp(Main.Databases d) {
    Timestamp first = write(d, Mutation.newInsertBuilder("Events").set("Id").to("mutation")
        .set("Written").to(Value.COMMIT_TIMESTAMP).build());
    var runner = d.google.readWriteTransaction();
    runner.run(t -> t.executeUpdate(Statement.of(
        "INSERT INTO Events (Id, Written) VALUES ('statement', PENDING_COMMIT_TIMESTAMP())")));
    KeySet keys = KeySet.newBuilder().addKey(Key.of("mutation")).addKey(Key.of("statement")).build();
    Main.equal("mutation," + first + "; statement," + runner.getCommitTimestamp(),
        read(d, "Events", keys, "Id", "Written"));
    return "";
  }

  static String batchWrite(Main.Databases d) {
    List<MutationGroup> groups = new ArrayList<>();
    for (long number = 0; number < 4; number++) {
      groups.add(MutationGroup.of(counter(Mutation.newInsertBuilder("Counters"), "group " + number, number)));
    }
    groups.add(MutationGroup.of(counter(Mutation.newInsertBuilder("Counters"), "group 0", 7L),
        counter(Mutation.newInsertBuilder("Counters"), "group 9", 9L)));
    int answered = 0;
    int failed = 0;
    for (BatchWriteResponse answer : d.google.batchWriteAtLeastOnce(groups)) {
      answered += answer.getIndexesCount();
      failed += answer.getStatus().getCode() == 0 ? 0 : answer.getIndexesCount();
    }
    // Groups are applied in any order: of the two that insert the same row, one fails.
    Main.equal("5 1", answered + " " + failed);
    return "";
  }

  private static final String[] NAMES =
      {"Bool", "Int", "Float4", "Float8", "Num", "Str", "Byt", "Dat", "Tim", "Jso"};
  private static final BigDecimal NUMBER = new BigDecimal("-12.345");
  private static final ByteArray BYTES = ByteArray.copyFrom(new byte[] {'h', 'e', 'l', 'l', 'o', 0, 1});
  private static final Date DAY = Date.fromYearMonthDay(2024, 2, 29);
  private static final Timestamp MOMENT = Timestamp.parseTimestamp("2024-02-29T12:34:56.123456789Z");
  private static final String JSON = "{\"a\":[1,null,\"x\"],\"b\":{}}";

  private static final List<Value> ROW = List.of(
      Value.bool(true), Value.int64(-42), Value.float32(0.5f), Value.float64(0.1), Value.numeric(NUMBER),
      Value.string("grüße 🌍"), Value.bytes(BYTES), Value.date(DAY), Value.timestamp(MOMENT), Value.json(JSON));
  private static final List<Value> NOTHING = List.of(
      Value.bool(null), Value.int64((Long) null), Value.float32((Float) null), Value.float64((Double) null),
      Value.numeric(null), Value.string(null), Value.bytes(null), Value.date(null), Value.timestamp(null),
      Value.json(null));
  private static final List<Value> ARRAYS = List.of(
      Value.boolArray(Arrays.asList(true, null)), Value.int64Array(Arrays.asList(-42L, null)),
      Value.float32Array(Arrays.asList(0.5f, null)), Value.float64Array(Arrays.asList(0.1, null)),
      Value.numericArray(Arrays.asList(NUMBER, null)), Value.stringArray(Arrays.asList("grüße 🌍", null)),
      Value.bytesArray(Arrays.asList(BYTES, null)), Value.dateArray(Arrays.asList(DAY, null)),
      Value.timestampArray(Arrays.asList(MOMENT, null)), Value.jsonArray(Arrays.asList(JSON, null)));
  private static final List<Value> EMPTY = List.of(
      Value.boolArray(new boolean[0]), Value.int64Array(new long[0]), Value.float32Array(new float[0]),
      Value.float64Array(new double[0]), Value.numericArray(List.of()), Value.stringArray(List.of()),
      Value.bytesArray(List.of()), Value.dateArray(List.of()), Value.timestampArray(List.of()),
      Value.jsonArray(List.of()));

  private static final List<String> TEXTS = List.of(
      "true", "-42", "0.5", "0.1", "-12.345", "grüße 🌍", "aGVsbG8AAQ==", "2024-02-29",
      "2024-02-29T12:34:56.123456789Z", JSON);
  private static final String TEXT = String.join(",", TEXTS);
  private static final String TEXT_NOTHING = TEXTS.stream().map(one -> "NULL").collect(Collectors.joining(","));
  private static final String TEXT_ARRAYS =
      TEXTS.stream().map(one -> "[" + one + ",NULL]").collect(Collectors.joining(","));
  private static final String TEXT_EMPTY = TEXTS.stream().map(one -> "[]").collect(Collectors.joining(","));

  private static Mutation typed(String table, long id, String[] names, List<Value> values) {
    var builder = Mutation.newInsertBuilder(table).set("Id").to(id);
    for (int index = 0; index < names.length; index++) {
      builder.set(names[index]).to(values.get(index));
    }
    return builder.build();
  }

  static String typesScalar(Main.Databases d) {
    write(d, typed("Scalars", 1, NAMES, ROW));
    Main.equal(TEXT, read(d, "Scalars", KeySet.singleKey(Key.of(1)), NAMES));
    String sql = "SELECT " + String.join(", ", NAMES) + " FROM Scalars WHERE Id = 1";
    Main.equal(TEXT, Main.rows(d.google.singleUse().executeQuery(Statement.of(sql))));
    return "";
  }

  static String typesExtreme(Main.Databases d) {
    String[] names = {"Int", "Float4", "Float8", "Num", "Str", "Byt", "Dat", "Tim"};
    String digits = "9".repeat(29) + ".999999999";
    write(d,
        typed("Scalars", 10, names, List.of(
            Value.int64(Long.MIN_VALUE), Value.float32(Float.NEGATIVE_INFINITY),
            Value.float64(Double.NEGATIVE_INFINITY), Value.numeric(new BigDecimal("-" + digits)), Value.string(""),
            Value.bytes(ByteArray.copyFrom(new byte[0])), Value.date(Date.fromYearMonthDay(1, 1, 1)),
            Value.timestamp(Timestamp.MIN_VALUE))),
        typed("Scalars", 11, names, List.of(
            Value.int64(Long.MAX_VALUE), Value.float32(Float.POSITIVE_INFINITY), Value.float64(Double.MAX_VALUE),
            Value.numeric(new BigDecimal(digits)), Value.string("\0\n\"'\\"),
            Value.bytes(ByteArray.copyFrom(new byte[] {-1})), Value.date(Date.fromYearMonthDay(9999, 12, 31)),
            Value.timestamp(Timestamp.MAX_VALUE))),
        typed("Scalars", 12, new String[] {"Float4", "Float8"},
            List.of(Value.float32(Float.NaN), Value.float64(Double.NaN))));
    Main.equal(
        "-9223372036854775808,-Infinity,-Infinity,-" + digits + ",,,0001-01-01,0001-01-01T00:00:00Z; "
            + "9223372036854775807,Infinity,1.7976931348623157E308," + digits
            + ",\0\n\"'\\,/w==,9999-12-31,9999-12-31T23:59:59.999999999Z",
        read(d, "Scalars", closed(10, 11), names));
    Main.equal("NaN,NaN", read(d, "Scalars", KeySet.singleKey(Key.of(12)), "Float4", "Float8"));
    return "";
  }

  static String typesArray(Main.Databases d) {
    write(d, typed("Arrays", 20, NAMES, ARRAYS), typed("Arrays", 21, NAMES, EMPTY));
    Main.equal(TEXT_ARRAYS + "; " + TEXT_EMPTY, read(d, "Arrays", closed(20, 21), NAMES));
    return "";
  }

  static String typesParameter(Main.Databases d) {
    String sql = "SELECT " + IntStream.range(0, NAMES.length).mapToObj(number -> "@p" + number)
        .collect(Collectors.joining(", "));
    Map.of(TEXT, ROW, TEXT_NOTHING, NOTHING, TEXT_ARRAYS, ARRAYS).forEach((expected, values) -> {
      var statement = Statement.newBuilder(sql);
      for (int number = 0; number < values.size(); number++) {
        statement.bind("p" + number).to(values.get(number));
      }
      Main.equal(expected, Main.rows(d.google.singleUse().executeQuery(statement.build())));
    });
    return "";
  }

  private static void singers(Main.Databases d, int first, int count) {
    write(d, IntStream.range(0, count).mapToObj(number -> Mutation.newInsertOrUpdateBuilder("Singers")
        .set("SingerId").to(first + number).set("Name").to("singer " + (first + number))
        .set("Born").to(Date.fromYearMonthDay(1950 + number, 1, 1)).build()).toArray(Mutation[]::new));
  }

  static String readRanges(Main.Databases d) {
    singers(d, 400, 10);
    Key from = Key.of(402);
    Key to = Key.of(404);
    Main.equal("402; 403", read(d, "Singers", KeySet.range(KeyRange.closedOpen(from, to)), "SingerId"));
    Main.equal("403; 404", read(d, "Singers", KeySet.range(KeyRange.openClosed(from, to)), "SingerId"));
    Main.equal("403", read(d, "Singers", KeySet.range(KeyRange.openOpen(from, to)), "SingerId"));
    Main.equal("402; 403; 404", read(d, "Singers", closed(402, 404), "SingerId"));
    Main.equal("400; 401", Main.rows(
        d.google.singleUse().read("Singers", closed(400, 499), List.of("SingerId"), Options.limit(2))));
    write(d,
        album(Mutation.newInsertBuilder("Albums"), 400, 0, null),
        album(Mutation.newInsertBuilder("Albums"), 400, 1, null),
        album(Mutation.newInsertBuilder("Albums"), 400, 2, null),
        album(Mutation.newInsertBuilder("Albums"), 401, 0, null));
    // A prefix of the key stands for all rows below it.
    KeySet prefix = KeySet.prefixRange(Key.of(400));
    Main.equal("400,0; 400,1; 400,2", read(d, "Albums", prefix, "SingerId", "AlbumId"));
    return "";
  }

  static String readIndex(Main.Databases d) {
    singers(d, 500, 10);
    Main.equal("singer 502,502,1952-01-01; singer 503,503,1953-01-01; singer 504,504,1954-01-01",
        Main.rows(d.google.singleUse().readUsingIndex("Singers", "SingersByName",
            closed("singer 502", "singer 504"), List.of("Name", "SingerId", "Born"))));
    return "";
  }

  static String largeValue(Main.Databases d) {
    byte[] data = new byte[6 << 20];
    for (int index = 0; index < data.length; index++) {
      data[index] = (byte) (index * 31 + index / 1000);
    }
    write(d, Mutation.newInsertBuilder("Blobs").set("Id").to(1).set("Data").to(ByteArray.copyFrom(data)).build());
    var row = d.google.singleUse().readRow("Blobs", Key.of(1), List.of("Data"));
    Main.equal(true, Arrays.equals(data, row.getBytes(0).toByteArray()));
    return "";
  }

  static String largeResult(Main.Databases d) {
    List<String> expected = new ArrayList<>();
    List<Mutation> all = new ArrayList<>();
    for (int number = 0; number < 4000; number++) {
      String name = String.format("%06d", number).repeat(300);
      expected.add((1000 + number) + "," + name);
      all.add(singer(Mutation.newInsertBuilder("Singers"), 1000 + number, name));
    }
    d.google.write(all);
    String text = String.join("; ", expected);
    String sql = "SELECT SingerId, Name FROM Singers WHERE SingerId >= 1000 ORDER BY SingerId";
    Main.equal(text, Main.rows(d.google.singleUse().executeQuery(Statement.of(sql))));
    Main.equal(text, read(d, "Singers", closed(1000, 99999), "SingerId", "Name"));
    return "";
  }

  private Rows() {}
}
