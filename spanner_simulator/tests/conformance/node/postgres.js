// A database of the PostgreSQL dialect, and the end of both databases.

import {Spanner} from '@google-cloud/spanner';
import {commit, equal, failsWith, plain, query, read, stamp, statements} from './harness.js';
import {INSTANCE} from './rows.js';
import {BOUND, follow} from './streams.js';

const COLUMNS = ['id', 'bool', 'int', 'float4', 'float8', 'num', 'str', 'byt', 'dat', 'tim', 'jso'];

function changes(d) {
  return async function* (token, start, end) {
    const stream = d.postgres.runStream({
      sql: 'SELECT * FROM spanner.read_json_changes($1, $2, $3, $4, null)',
      params: {p1: start, p2: end, p3: token, p4: 1000},
      types: {p1: 'timestamp', p2: 'timestamp', p3: 'string', p4: 'int64'},
    }, BOUND);
    for await (const row of stream) {
      // One object where a row of GoogleSQL has an array of one.
      const [[kind, record]] = Object.entries(row[0].value.value);
      yield {[kind]: [record]};
    }
  };
}

export const postgresChecks = {
  async pg_database_created(d) {
    const admin = d.spanner.getDatabaseAdminClient();
    const [operation] = await admin.createDatabase({
      parent: INSTANCE, createStatement: 'CREATE DATABASE "node-postgres"', databaseDialect: 'POSTGRESQL',
    });
    await operation.promise();
    d.postgres = d.instance.database('node-postgres');
    const [update] = await d.postgres.updateSchema(statements('postgres.sql'));
    await update.promise();
    const [ddl] = await d.postgres.getSchema();
    for (const part of ['create change stream changes', 'timestamp with time zone', 'include (born)']) {
      equal([part, true], [part, ddl.join('\n').toLowerCase().includes(part)]);
    }
    const [found] = await admin.getDatabase({name: `${INSTANCE}/databases/node-postgres`});
    equal('POSTGRESQL', found.databaseDialect);
  },

  async pg_types(d) {
    const row = [
      true, Spanner.int(-42), Spanner.float32(0.5), Spanner.float(0.1), Spanner.pgNumeric('-12.3450'), 'grüße 🌍',
      Buffer.from('hello\x00\x01'), Spanner.date('2024-02-29'), Spanner.timestamp('2024-02-29T12:34:56.123456Z'),
      Spanner.pgJsonb({a: [1, null, 'x'], b: {}}),
    ];
    const table = d.postgres.table('scalars');
    await table.insert({id: 1, ...Object.fromEntries(row.map((value, index) => [COLUMNS[index + 1], value]))});
    await table.insert({id: 2});
    await table.insert({id: 3, num: Spanner.pgNumeric('NaN'), float8: Spanner.float(Infinity)});
    const [first, second] = await read(d.postgres, 'scalars', COLUMNS, {keys: [1, 2]});
    equal(
      [
        '1', true, '-42', 0.5, 0.1, '-12.3450', 'grüße 🌍', 'aGVsbG8AAQ==', '2024-02-29',
        '2024-02-29T12:34:56.123456Z', {a: [1, null, 'x'], b: {}},
      ],
      first);
    equal(['2', ...Array(10).fill(null)], second);
    equal([['NaN', 'Infinity']], await query(d.postgres, 'SELECT num, float8 FROM scalars WHERE id = 3'));
  },

  async pg_types_array(d) {
    const names = ['id', 'int', 'num', 'str', 'jso'];
    await d.postgres.table('arrays').insert([
      {
        id: 1, int: [1, null], num: [Spanner.pgNumeric('1.50'), null], str: ['a', null],
        jso: [Spanner.pgJsonb({a: 1}), null],
      },
      {id: 2, int: [], num: [], str: [], jso: []},
      {id: 3, int: null, num: null, str: null, jso: null},
    ]);
    equal(
      [
        ['1', ['1', null], ['1.50', null], ['a', null], [{a: 1}, null]],
        ['2', [], [], [], []],
        ['3', null, null, null, null],
      ],
      await read(d.postgres, 'arrays', names, {}));
  },

  async pg_query(d) {
    await commit(d.postgres, t => {
      t.insert('singers', ['first', 'second', 'third'].map((name, index) => ({singerid: index + 1, name})));
      t.insert('albums', [{singerid: 1, albumid: 1, price: 10}, {singerid: 1, albumid: 2, price: 20}]);
    });
    equal([['first', '2', '30'], ['second', '0', null]], await query(d.postgres,
      'SELECT s.name, count(a.albumid) AS n, sum(a.price) FROM singers s ' +
        'LEFT JOIN albums a ON a.singerid = s.singerid WHERE s.name >= $1 AND s.singerid = ANY($2) ' +
        'GROUP BY s.name ORDER BY s.name LIMIT $3',
      {p1: 'a', p2: [1, 2], p3: 5}, {p1: 'string', p2: {type: 'array', child: 'int64'}, p3: 'int64'}));
    equal([['third', '3']],
      await read(d.postgres, 'singers', ['name', 'singerid'], {keys: ['third'], index: 'singersbyname'}));
  },

  async pg_dml(d) {
    const found = await d.postgres.runTransactionAsync(async t => {
      const [count] = await t.runUpdate({
        sql: "INSERT INTO singers (singerid, name) VALUES ($1, $2), (101, 'b')", params: {p1: 100, p2: 'a'},
      });
      const [rows] = await t.run("UPDATE singers SET name = name || '!' WHERE singerid = 100 RETURNING name");
      await t.commit();
      return [count, plain(rows)];
    });
    equal([2, [['a!']]], found);
    equal([2], await d.postgres.runPartitionedUpdate('DELETE FROM singers WHERE singerid >= 100'));
  },

  async pg_information_schema(d) {
    equal([['id', 'bigint', 'NO'], ['balance', 'bigint', 'YES'], ['owner', 'character varying', 'YES']],
      await query(d.postgres,
        'SELECT column_name, spanner_type, is_nullable FROM information_schema.columns ' +
          "WHERE table_schema = 'public' AND table_name = $1 ORDER BY ordinal_position",
        {p1: 'accounts'}));
  },

  async pg_stream(d) {
    const start = await commit(d.postgres, t => t.insert('accounts', {id: 1, balance: 7, owner: 'a'}));
    const last = await commit(d.postgres, t => t.deleteRows('accounts', [1]));
    const [found] = await follow(changes(d), stamp(start), stamp(last));
    const values = {balance: '7', owner: 'a'};
    equal(
      [
        ['INSERT', [{keys: {id: '1'}, new_values: values, old_values: {}}]],
        ['DELETE', [{keys: {id: '1'}, new_values: {}, old_values: values}]],
      ],
      found.map(record => [record.mod_type, record.mods]));
    equal(1, found[0].number_of_records_in_transaction);
  },

  async database_dropped(d) {
    const admin = d.spanner.getInstanceAdminClient();
    for (const database of [d.google, d.postgres]) {
      await database.delete();
      const [exists] = await database.exists();
      equal(false, exists);
    }
    await d.instance.delete();
    await failsWith('NOT_FOUND', admin.getInstance({name: INSTANCE}));
  },
};
