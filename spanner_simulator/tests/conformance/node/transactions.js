// Queries, DML, read-write transactions, snapshots and partitioned reads.

import {commit, equal, failsWith, plain, query, read, sleep} from './harness.js';

const INT64S = {type: 'array', child: 'int64'};

async function put(d, ...rows) {
  return commit(d.google, t => t.upsert('Counters', rows.map(([Name, Value]) => ({Name, Value}))));
}

async function counter(d, name, bounds = {}) {
  const rows = await read(d.google, 'Counters', ['Value'], {keys: [name]}, bounds);
  return rows[0]?.[0] ?? null;
}

async function albums(d, singer) {
  await commit(d.google, t => {
    t.upsert('Singers', [{SingerId: singer, Name: 'first'}, {SingerId: singer + 1, Name: 'second'}]);
    t.upsert('Albums', [
      {SingerId: singer, AlbumId: 1, Title: 'a', Price: 10}, {SingerId: singer, AlbumId: 2, Title: 'b', Price: 20},
      {SingerId: singer + 1, AlbumId: 1, Title: 'c', Price: null},
    ]);
  });
}

/** Runs the work in a transaction and commits it. */
function inTransaction(d, work) {
  return d.google.runTransactionAsync(async t => {
    const found = await work(t);
    await t.commit();
    return found;
  });
}

async function partitioned(d, prefix, partitions) {
  const names = Array.from({length: 20}, (_, number) => `${prefix}${String(number).padStart(2, '0')}`);
  await put(d, ...names.map(name => [name, 1]));
  const [snapshot] = await d.google.createBatchTransaction();
  const [parts] = await partitions(snapshot);
  await put(d, [`${prefix}99`, 1]);
  const found = [];
  for (const part of parts) {
    const [rows] = await snapshot.execute(part);
    found.push(...plain(rows).flat());
  }
  equal(names, found.sort());
  await snapshot.close();
}

export const transactionChecks = {
  async query_parameters(d) {
    await albums(d, 600);
    equal([['b', '21'], ['a', '11']], await query(d.google,
      'SELECT Title, Price + @more AS Dearer FROM Albums ' +
        'WHERE SingerId = @SINGER AND Title >= @title ORDER BY Title DESC LIMIT @most OFFSET 0',
      {singer: 600, title: 'a', most: 5, more: 1, unused: null},
      {singer: 'int64', title: 'string', most: 'int64', more: 'int64', unused: 'string'}));
  },

  async query_in_unnest(d) {
    await albums(d, 610);
    equal([['1', 'a'], ['2', 'b']], await query(d.google,
      'SELECT AlbumId, Title FROM Albums WHERE SingerId = 610 AND Title IN UNNEST(@titles) ORDER BY AlbumId',
      {titles: ['b', 'c', 'a']}));
    const sql = 'SELECT COUNT(*) FROM Albums WHERE SingerId IN UNNEST(@none)';
    equal([['0']], await query(d.google, sql, {none: []}, {none: INT64S}));
  },

  async query_join(d) {
    await albums(d, 620);
    equal([['first', '2', '30'], ['second', '1', null]], await query(d.google,
      'SELECT s.Name, COUNT(a.AlbumId) AS n, SUM(a.Price) AS total FROM Singers AS s ' +
        'LEFT JOIN Albums AS a ON a.SingerId = s.SingerId WHERE s.SingerId BETWEEN 620 AND 629 ' +
        'GROUP BY s.Name HAVING COUNT(*) > 0 ORDER BY s.Name'));
  },

  async query_arrays(d) {
    await albums(d, 630);
    equal([[['a', 'b'], '3', [['1', 'x']]]], await query(d.google,
      'SELECT ARRAY(SELECT Title FROM Albums WHERE SingerId = 630 ORDER BY AlbumId), ' +
        "ARRAY_LENGTH(@given), ARRAY(SELECT AS STRUCT 1 AS a, 'x' AS b)",
      {given: [1, null, 3]}, {given: INT64S}));
    const sql = 'SELECT n, o FROM UNNEST(@given) AS n WITH OFFSET AS o ORDER BY o';
    equal([['7', '0'], ['8', '1']], await query(d.google, sql, {given: [7, 8]}, {given: INT64S}));
  },

  async query_index(d) {
    await albums(d, 640);
    equal([['641']], await query(d.google,
      'SELECT SingerId FROM Singers@{FORCE_INDEX=SingersByName} ' +
        "WHERE Name = 'second' AND SingerId BETWEEN 640 AND 649"));
  },

  async query_no_rows(d) {
    const [rows, , metadata] = await d.google.run("SELECT Name, Value AS v FROM Counters WHERE Name = 'none'");
    equal([[], ['Name', 'v']], [rows, metadata.rowType.fields.map(field => field.name)]);
  },

  async dml_inline_begin(d) {
    const counts = await inTransaction(d, async t => [
      ...(await t.runUpdate({
        sql: "INSERT INTO Counters (Name, Value) VALUES ('dml a', 1), ('dml b', @two)", params: {two: 2},
      })),
      ...(await t.runUpdate("UPDATE Counters SET Value = Value + 10 WHERE STARTS_WITH(Name, 'dml ')")),
      ...(await t.runUpdate("DELETE FROM Counters WHERE Name = 'dml a'")),
    ]);
    equal([2, 2, 1], counts);
    equal('12', await counter(d, 'dml b'));
  },

  async dml_returning(d) {
    const found = await inTransaction(d, async t => {
      const all = [];
      for (const sql of [
        "INSERT INTO Counters (Name, Value) VALUES ('returned', 5) THEN RETURN Name, Value * 2",
        "UPDATE Counters SET Value = 6 WHERE Name = 'returned' THEN RETURN Value",
        "DELETE FROM Counters WHERE Name = 'returned' THEN RETURN Name, Value",
      ]) {
        const [rows, stats] = await t.run(sql);
        all.push(...plain(rows), Number(stats.rowCountExact));
      }
      return all;
    });
    equal([['returned', '10'], 1, ['6'], 1, ['returned', '6'], 1], found);
  },

  async dml_batch(d) {
    const counts = await inTransaction(d, async t => {
      const [found] = await t.batchUpdate([
        "INSERT INTO Counters (Name, Value) VALUES ('batch', 1)",
        {sql: "UPDATE Counters SET Value = @value WHERE Name = 'batch'", params: {value: 2}},
        "DELETE FROM Counters WHERE Name = 'no such'",
      ]);
      return found;
    });
    equal([1, 1, 0], counts);
    equal('2', await counter(d, 'batch'));
  },

  async dml_batch_error(d) {
    const error = await d.google.runTransactionAsync(async t => {
      try {
        await t.batchUpdate([
          "INSERT INTO Counters (Name, Value) VALUES ('partly', 1)",
          "INSERT INTO Counters (Name, Value) VALUES ('partly', 2)",
          "INSERT INTO Counters (Name, Value) VALUES ('never tried', 3)",
        ]);
      } catch (failure) {
        await t.rollback();
        return failure;
      }
      throw new Error('nothing went wrong');
    });
    equal([6, [1]], [error.code, error.rowCounts]);
    equal([null, null], [await counter(d, 'partly'), await counter(d, 'never tried')]);
  },

  async dml_partitioned(d) {
    await put(d, ...Array.from({length: 50}, (_, number) => [`many ${number}`, 1]));
    const [count] = await d.google.runPartitionedUpdate({
      sql: "UPDATE Counters SET Value = @value WHERE STARTS_WITH(Name, 'many ')", params: {value: 3},
    });
    equal(50, count);
    const sql = "SELECT SUM(Value) FROM Counters WHERE STARTS_WITH(Name, 'many ')";
    equal([['150']], await query(d.google, sql));
  },

  async dml_seen_in_transaction(d) {
    await put(d, ['seen', 1]);
    const sql = "SELECT Value FROM Counters WHERE Name = 'seen'";
    const found = await inTransaction(d, async t => {
      await t.runUpdate("UPDATE Counters SET Value = 2 WHERE Name = 'seen'");
      const [rows] = await t.read('Counters', {columns: ['Value'], keys: ['seen']});
      const outside = await counter(d, 'seen');
      // Mutations wait for the commit, and are applied after the statements.
      t.update('Counters', {Name: 'seen', Value: 3});
      const [again] = await t.run(sql);
      return [...plain(rows), outside, ...plain(again)];
    });
    equal([['2'], '1', ['2']], found);
    equal('3', await counter(d, 'seen'));
  },

  async transaction_retried(d) {
    await put(d, ['contended', 0]);
    let [attempts, arrived] = [0, 0];
    let bothHere;
    const both = new Promise(resolve => (bothHere = resolve));
    const addOne = () => {
      let first = true;
      return d.google.runTransactionAsync(async t => {
        attempts += 1;
        const [[[column]]] = await t.read('Counters', {columns: ['Value'], keys: ['contended']});
        if (first) {
          // Both have read before either writes; a server that locks lets only one come here.
          first = false;
          arrived += 1;
          if (arrived === 2) bothHere();
          await Promise.race([both, sleep(2000)]);
        }
        t.update('Counters', {Name: 'contended', Value: Number(column.value.value) + 1});
        await t.commit();
      });
    };
    await Promise.all([addOne(), addOne()]);
    equal('2', await counter(d, 'contended'));
    return `${attempts} attempts`;
  },

  async transaction_rolled_back(d) {
    const second = new Error('second thoughts');
    const failure = await d.google.runTransactionAsync(async t => {
      await t.runUpdate("INSERT INTO Counters (Name, Value) VALUES ('undone', 1)");
      await t.rollback();
      throw second;
    }).catch(error => error);
    equal(second.message, failure.message);
    equal(null, await counter(d, 'undone'));
  },

  async snapshot_strong(d) {
    await put(d, ['strong', 1]);
    const [snapshot] = await d.google.getSnapshot();
    const [before] = await snapshot.read('Counters', {columns: ['Value'], keys: ['strong']});
    await put(d, ['strong', 2]);
    const [after] = await snapshot.run("SELECT Value FROM Counters WHERE Name = 'strong'");
    snapshot.end();
    equal([[['1']], [['1']], '2'], [plain(before), plain(after), await counter(d, 'strong')]);
  },

  async snapshot_exact_staleness(d) {
    await put(d, ['stale', 1]);
    await sleep(1500);
    await put(d, ['stale', 2]);
    equal('1', await counter(d, 'stale', {exactStaleness: {seconds: 1}}));
  },

  async snapshot_read_timestamp(d) {
    const first = await put(d, ['at', 1]);
    const second = await put(d, ['at', 2]);
    equal('1', await counter(d, 'at', {readTimestamp: first}));
    equal('2', await counter(d, 'at', {readTimestamp: second}));
    const [snapshot] = await d.google.getSnapshot({readTimestamp: first});
    const [rows] = await snapshot.run("SELECT Value FROM Counters WHERE Name = 'at'");
    snapshot.end();
    equal([['1']], plain(rows));
  },

  async snapshot_bounded(d) {
    const last = await put(d, ['bounded', 1]);
    // A read of this client is a multi-use transaction, a query is not.
    const sql = "SELECT Value FROM Counters WHERE Name = 'bounded'";
    equal([['1']], await query(d.google, sql, {}, {}, {minReadTimestamp: last}));
    const stale = await query(d.google, sql, {}, {}, {maxStaleness: {seconds: 3600}});
    equal(true, stale.length === 0 || stale[0][0] === '1');
  },

  async partition_read(d) {
    await partitioned(d, 'part ', snapshot => snapshot.createReadPartitions({
      table: 'Counters', columns: ['Name'], ranges: [{startClosed: ['part '], endOpen: ['part~']}],
    }));
  },

  async partition_query(d) {
    await partitioned(d, 'slice ', async snapshot => {
      const refused = snapshot.createQueryPartitions('SELECT COUNT(*) FROM Counters ORDER BY 1');
      await failsWith('INVALID_ARGUMENT', refused);
      return snapshot.createQueryPartitions({
        sql: 'SELECT Name FROM Counters WHERE STARTS_WITH(Name, @start)', params: {start: 'slice '},
      });
    });
  },
};
