import com.google.cloud.Timestamp;
import com.google.cloud.spanner.BatchReadOnlyTransaction;
import com.google.cloud.spanner.ErrorCode;
import com.google.cloud.spanner.Key;
import com.google.cloud.spanner.KeyRange;
import com.google.cloud.spanner.KeySet;
import com.google.cloud.spanner.Mutation;
import com.google.cloud.spanner.Partition;
import com.google.cloud.spanner.PartitionOptions;
import com.google.cloud.spanner.ReadOnlyTransaction;
import com.google.cloud.spanner.Statement;
import com.google.cloud.spanner.TimestampBound;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Queries, DML, read-write transactions, snapshots and partitioned reads. */
final class Transactions {
  static final Map<String, Main.Check> CHECKS = new LinkedHashMap<>();

  static {
    CHECKS.put("query_parameters", Transactions::queryParameters);
    CHECKS.put("dml_inline_begin", Transactions::dmlInlineBegin);
    CHECKS.put("dml_returning", Transactions::dmlReturning);
    CHECKS.put("dml_partitioned", Transactions::dmlPartitioned);
    CHECKS.put("dml_seen_in_transaction", Transactions::dmlSeenInTransaction);
    CHECKS.put("transaction_retried", Transactions::transactionRetried);
    CHECKS.put("transaction_rolled_back", Transactions::transactionRolledBack);
    CHECKS.put("snapshot_strong", Transactions::snapshotStrong);
    CHECKS.put("snapshot_read_timestamp", Transactions::snapshotReadTimestamp);
    CHECKS.put("partition_read", Transactions::partitionRead);
    CHECKS.put("partition_query", Transactions::partitionQuery);
  }

  static String query(Main.Databases d, Statement statement) {
    return Main.rows(d.google.singleUse().executeQuery(statement));
  }

  private static Timestamp put(Main.Databases d, String name, long value) {
    return Rows.write(d, Rows.counter(Mutation.newInsertOrUpdateBuilder("Counters"), name, value));
  }

  private static String counter(Main.Databases d, String name) {
    return counter(d, name, TimestampBound.strong());
  }

  private static String counter(Main.Databases d, String name, TimestampBound bound) {
    var row = d.google.singleUse(bound).readRow("Counters", Key.of(name), List.of("Value"));
    return row == null ? "none" : String.valueOf(row.getLong(0));
  }

  private static void albums(Main.Databases d, long singer) {
    Rows.write(d,
        Rows.singer(Mutation.newInsertOrUpdateBuilder("Singers"), singer, "first"),
        Rows.singer(Mutation.newInsertOrUpdateBuilder("Singers"), singer + 1, "second"),
        Rows.album(Mutation.newInsertOrUpdateBuilder("Albums").set("Price").to(10), singer, 1, "a"),
        Rows.album(Mutation.newInsertOrUpdateBuilder("Albums").set("Price").to(20), singer, 2, "b"),
        Rows.album(Mutation.newInsertOrUpdateBuilder("Albums"), singer + 1, 1, "c"));
  }

  static String queryParameters(Main.Databases d) {
    albums(d, 600);
    Main.equal("b,21; a,11", query(d, Statement.newBuilder(
        "SELECT Title, Price + @more AS Dearer FROM Albums "
            + "WHERE SingerId = @SINGER AND Title >= @title ORDER BY Title DESC LIMIT @most OFFSET 0")
        .bind("singer").to(600).bind("title").to("a").bind("most").to(5).bind("more").to(1)
        .bind("unused").to((String) null).build()));
    return "";
  }

  static String dmlInlineBegin(Main.Databases d) {
    List<Long> counts = d.google.readWriteTransaction().run(t -> List.of(
        t.executeUpdate(Statement.newBuilder("INSERT INTO Counters (Name, Value) VALUES ('dml a', 1), ('dml b', @two)")
            .bind("two").to(2).build()),
        t.executeUpdate(Statement.of("UPDATE Counters SET Value = Value + 10 WHERE STARTS_WITH(Name, 'dml ')")),
        t.executeUpdate(Statement.of("DELETE FROM Counters WHERE Name = 'dml a'"))));
    Main.equal(List.of(2L, 2L, 1L), counts);
    Main.equal("12", counter(d, "dml b"));
    return "";
  }

  static String dmlReturning(Main.Databases d) {
    String found = d.google.readWriteTransaction().run(t -> {
      List<String> all = new ArrayList<>();
      for (String sql : List.of(
          "INSERT INTO Counters (Name, Value) VALUES ('returned', 5) THEN RETURN Name, Value * 2",
          "UPDATE Counters SET Value = 6 WHERE Name = 'returned' THEN RETURN Value",
          "DELETE FROM Counters WHERE Name = 'returned' THEN RETURN Name, Value")) {
        try (var answer = t.executeQuery(Statement.of(sql))) {
          while (answer.next()) {
            all.add(Main.row(answer));
          }
          all.add(String.valueOf(answer.getStats().getRowCountExact()));
        }
      }
      return String.join(" ", all);
    });
    Main.equal("returned,10 1 6 1 returned,6 1", found);
    return "";
  }

  static String dmlPartitioned(Main.Databases d) {
    Rows.write(d, IntStream.range(0, 50).mapToObj(
        number -> Rows.counter(Mutation.newInsertOrUpdateBuilder("Counters"), "many " + number, 1L))
        .toArray(Mutation[]::new));
    long count = d.google.executePartitionedUpdate(Statement.newBuilder(
        "UPDATE Counters SET Value = @value WHERE STARTS_WITH(Name, 'many ')").bind("value").to(3).build());
    Main.equal(50L, count);
    Main.equal("150", query(d,
        Statement.of("SELECT SUM(Value) FROM Counters WHERE STARTS_WITH(Name, 'many ')")));
    return "";
  }

  static String dmlSeenInTransaction(Main.Databases d) {
    put(d, "seen", 1);
    Statement select = Statement.of("SELECT Value FROM Counters WHERE Name = 'seen'");
    String found = d.google.readWriteTransaction().allowNestedTransaction().run(t -> {
      t.executeUpdate(Statement.of("UPDATE Counters SET Value = 2 WHERE Name = 'seen'"));
      String read = Main.row(t.readRow("Counters", Key.of("seen"), List.of("Value")));
      String outside = counter(d, "seen");
      // Mutations wait for the commit, and are applied after the statements.
      t.buffer(Rows.counter(Mutation.newUpdateBuilder("Counters"), "seen", 3L));
      return read + " " + outside + " " + Main.rows(t.executeQuery(select));
    });
    Main.equal("2 1 2", found);
    Main.equal("3", counter(d, "seen"));
    return "";
  }

  static String transactionRetried(Main.Databases d) throws Exception {
    put(d, "contended", 0);
    AtomicInteger attempts = new AtomicInteger();
    CountDownLatch both = new CountDownLatch(2);
    Runnable addOne = () -> {
      boolean[] first = {true};
      d.google.readWriteTransaction().run(t -> {
        attempts.incrementAndGet();
        long value = t.readRow("Counters", Key.of("contended"), List.of("Value")).getLong(0);
        if (first[0]) {
          // Both have read before either writes; a server that locks lets only one come here.
          first[0] = false;
          both.countDown();
          both.await(2, TimeUnit.SECONDS);
        }
        t.buffer(Rows.counter(Mutation.newUpdateBuilder("Counters"), "contended", value + 1));
        return null;
      });
    };
    var one = CompletableFuture.runAsync(addOne, work -> new Thread(work).start());
    var other = CompletableFuture.runAsync(addOne, work -> new Thread(work).start());
    one.get();
    other.get();
    Main.equal("2", counter(d, "contended"));
    return attempts + " attempts";
  }

  static String transactionRolledBack(Main.Databases d) {
    IllegalStateException second = new IllegalStateException("second thoughts");
    try {
      d.google.readWriteTransaction().run(t -> {
        t.executeUpdate(Statement.of("INSERT INTO Counters (Name, Value) VALUES ('undone', 1)"));
        throw second;
      });
    } catch (RuntimeException error) {
      Main.equal(true, error.getMessage().contains("second thoughts"));
    }
    Main.equal("none", counter(d, "undone"));
    return "";
  }

  static String snapshotStrong(Main.Databases d) {
    put(d, "strong", 1);
    try (ReadOnlyTransaction snapshot = d.google.readOnlyTransaction()) {
      String before = Main.row(snapshot.readRow("Counters", Key.of("strong"), List.of("Value")));
      put(d, "strong", 2);
      String after = Main.rows(snapshot.executeQuery(
          Statement.of("SELECT Value FROM Counters WHERE Name = 'strong'")));
      Main.equal("1 1 2", before + " " + after + " " + counter(d, "strong"));
    }
    return "";
  }

  static String snapshotReadTimestamp(Main.Databases d) {
    Timestamp first = put(d, "at", 1);
    Timestamp second = put(d, "at", 2);
    Main.equal("1", counter(d, "at", TimestampBound.ofReadTimestamp(first)));
    Main.equal("2", counter(d, "at", TimestampBound.ofReadTimestamp(second)));
    try (ReadOnlyTransaction snapshot = d.google.readOnlyTransaction(TimestampBound.ofReadTimestamp(first))) {
      Main.equal("1", Main.rows(snapshot.executeQuery(
          Statement.of("SELECT Value FROM Counters WHERE Name = 'at'"))));
      Main.equal(first, snapshot.getReadTimestamp());
    }
    return "";
  }

  private static void partitioned(
      Main.Databases d, String prefix, Function<BatchReadOnlyTransaction, List<Partition>> parts) {
    List<String> names = IntStream.range(0, 20).mapToObj(number -> String.format("%s%02d", prefix, number)).toList();
    names.forEach(name -> put(d, name, 1));
    try (BatchReadOnlyTransaction snapshot = d.batch.batchReadOnlyTransaction(TimestampBound.strong())) {
      List<Partition> all = parts.apply(snapshot);
      put(d, prefix + "99", 1);
      List<String> found = new ArrayList<>();
      for (Partition part : all) {
        try (var rows = snapshot.execute(part)) {
          while (rows.next()) {
            found.add(rows.getString(0));
          }
        }
      }
      Main.equal(names, found.stream().sorted().collect(Collectors.toList()));
    }
  }

  static String partitionRead(Main.Databases d) {
    KeySet keys = KeySet.range(KeyRange.closedOpen(Key.of("part "), Key.of("part~")));
    partitioned(d, "part ", snapshot -> snapshot.partitionRead(
        PartitionOptions.getDefaultInstance(), "Counters", keys, List.of("Name")));
    return "";
  }

  static String partitionQuery(Main.Databases d) throws Exception {
    partitioned(d, "slice ", snapshot -> snapshot.partitionQuery(PartitionOptions.getDefaultInstance(),
        Statement.newBuilder("SELECT Name FROM Counters WHERE STARTS_WITH(Name, @start)")
            .bind("start").to("slice ").build()));
    try (BatchReadOnlyTransaction snapshot = d.batch.batchReadOnlyTransaction(TimestampBound.strong())) {
      Main.failsWith(ErrorCode.INVALID_ARGUMENT, () -> snapshot.partitionQuery(
          PartitionOptions.getDefaultInstance(), Statement.of("SELECT COUNT(*) FROM Counters ORDER BY 1")));
    }
    return "";
  }

  private Transactions() {}
}
