// Administration, mutations, types, reads and large values.

import {randomBytes} from 'node:crypto';
import {once} from 'node:events';
import {MutationGroup, Spanner, v1} from '@google-cloud/spanner';
import grpc from '@grpc/grpc-js';
import {commit, equal, failsWith, plain, query, read, stamp, statements} from './harness.js';

const PROJECT = 'projects/conformance';
export const INSTANCE = `${PROJECT}/instances/conformance-node`;

const NAMES = ['Bool', 'Int', 'Float4', 'Float8', 'Num', 'Str', 'Byt', 'Dat', 'Tim', 'Jso'];
const TYPES = ['bool', 'int64', 'float32', 'float64', 'numeric', 'string', 'bytes', 'date', 'timestamp', 'json'];
const ROW = [
  true, Spanner.int(-42), Spanner.float32(0.5), Spanner.float(0.1), Spanner.numeric('-12.345'), 'grüße 🌍',
  Buffer.from('hello\x00\x01'), Spanner.date('2024-02-29'), Spanner.timestamp('2024-02-29T12:34:56.123456789Z'),
  {a: [1, null, 'x'], b: {}},
];
const WIRE = [
  true, '-42', 0.5, 0.1, '-12.345', 'grüße 🌍', 'aGVsbG8AAQ==', '2024-02-29', '2024-02-29T12:34:56.123456789Z',
  {a: [1, null, 'x'], b: {}},
];

const object = (names, values) => Object.fromEntries(names.map((name, index) => [name, values[index]]));
const nothing = NAMES.map(() => null);
const closed = (first, last) => ({ranges: [{startClosed: [first], endClosed: [last]}]});
const numbers = (count, from = 0) => Array.from({length: count}, (_, index) => from + index);

async function singers(d, first, count) {
  await d.google.table('Singers').upsert(numbers(count).map(number => ({
    SingerId: first + number,
    Name: `singer ${first + number}`,
    Born: Spanner.date(`${1950 + number}-01-01`),
  })));
}

export const rowChecks = {
  async instance_created(d) {
    d.instance = d.spanner.instance('conformance-node');
    const admin = d.spanner.getInstanceAdminClient();
    const [operation] = await admin.createInstance({
      parent: PROJECT,
      instanceId: 'conformance-node',
      instance: {config: `${PROJECT}/instanceConfigs/emulator-config`, displayName: 'conformance', nodeCount: 1},
    });
    await operation.promise();
    const [listed] = await admin.listInstances({parent: PROJECT});
    equal(true, listed.some(one => one.name === INSTANCE));
  },

  async database_created(d) {
    const admin = d.spanner.getDatabaseAdminClient();
    const [operation] = await admin.createDatabase({
      parent: INSTANCE,
      createStatement: 'CREATE DATABASE `node-google`',
      extraStatements: statements('google.sql'),
    });
    await operation.promise();
    const [found] = await admin.getDatabase({name: `${INSTANCE}/databases/node-google`});
    equal('READY', found.state);
    d.google = d.instance.database('node-google');
  },

  async ddl_read_back(d) {
    const [found] = await d.google.getSchema();
    for (const part of [
      'CREATE CHANGE STREAM Changes', 'INTERLEAVE IN PARENT Singers ON DELETE CASCADE', 'STORING (Born)',
      'allow_commit_timestamp',
    ]) {
      equal([part, true], [part, found.join('\n').includes(part)]);
    }
  },

  async ddl_changed(d) {
    const [operation] = await d.google.updateSchema([
      'ALTER TABLE Counters ADD COLUMN Note STRING(100)', 'CREATE INDEX ByNote ON Counters(Note)',
    ]);
    await operation.promise();
    equal(
      [['Name', 'STRING(64)'], ['Value', 'INT64'], ['Note', 'STRING(100)']],
      await query(d.google,
        'SELECT COLUMN_NAME, SPANNER_TYPE FROM INFORMATION_SCHEMA.COLUMNS ' +
          'WHERE TABLE_NAME = @table ORDER BY ORDINAL_POSITION',
        {table: 'Counters'}));
  },

  async unknown_database(d) {
    const [exists] = await d.instance.database('nowhere').exists();
    equal(false, exists);
  },

  async bad_sql(d) {
    await failsWith('INVALID_ARGUMENT', query(d.google, 'SELECT FROM WHERE'));
    await failsWith('INVALID_ARGUMENT', query(d.google, 'SELECT 1 FROM Nope'));
  },

  async session_multiplexed(d) {
    const [servicePath, port] = process.env.SPANNER_EMULATOR_HOST.split(':');
    const api = new v1.SpannerClient({servicePath, port: Number(port), sslCreds: grpc.credentials.createInsecure()});
    const [session] = await api.createSession({
      database: `${INSTANCE}/databases/node-google`, session: {multiplexed: true},
    });
    equal(true, session.multiplexed);
    const values = [{values: [{stringValue: 'multiplexed'}, {stringValue: '1'}]}];
    const mutation = {insert: {table: 'Counters', columns: ['Name', 'Value'], values}};
    const [begun] = await api.beginTransaction({
      session: session.name, options: {readWrite: {}}, mutationKey: mutation,
    });
    const [answer] = await api.commit({
      session: session.name, transactionId: begun.id, mutations: [mutation], precommitToken: begun.precommitToken,
    });
    equal(true, Number(answer.commitTimestamp.seconds) > 0);
    await api.close();
  },

  async mutations(d) {
    const table = d.google.table('Singers');
    const Born = Spanner.date('1970-01-01');
    await table.insert(numbers(6, 100).map(SingerId => ({SingerId, Name: `name ${SingerId}`, Born})));
    await commit(d.google, t => {
      t.update('Singers', {SingerId: 100, Name: 'updated'});
      t.upsert('Singers', [{SingerId: 101, Name: 'upserted'}, {SingerId: 110, Name: 'new'}]);
      t.replace('Singers', {SingerId: 102, Name: 'replaced'});
      // This client deletes by keys alone.
      t.deleteRows('Singers', [[103], [104], [105]]);
    });
    equal(
      [
        ['100', 'updated', '1970-01-01'], ['101', 'upserted', '1970-01-01'], ['102', 'replaced', null],
        ['110', 'new', null],
      ],
      await read(d.google, 'Singers', ['SingerId', 'Name', 'Born'], closed(100, 199)));
  },

  async mutation_errors(d) {
    const table = d.google.table('Counters');
    await table.insert({Name: 'once', Value: 1});
    await failsWith('ALREADY_EXISTS', table.insert({Name: 'once', Value: 1}));
    await failsWith('NOT_FOUND', table.update({Name: 'never', Value: 1}));
    await failsWith('NOT_FOUND', d.google.table('Nope').insert({Name: 'a', Value: 1}));
    await failsWith('FAILED_PRECONDITION', table.insert({Name: 'null value', Value: null}));
  },

  async cascade(d) {
    await commit(d.google, t => {
      t.insert('Singers', [{SingerId: 200}, {SingerId: 201}]);
      t.insert('Albums', [
        {SingerId: 200, AlbumId: 1, Title: 'a'}, {SingerId: 200, AlbumId: 2, Title: 'b'},
        {SingerId: 201, AlbumId: 1, Title: 'c'},
      ]);
    });
    await d.google.table('Singers').deleteRows([[200]]);
    equal([['201', '1', 'c']], await read(d.google, 'Albums', ['SingerId', 'AlbumId', 'Title'], closed(200, 201)));
    await failsWith('NOT_FOUND', d.google.table('Albums').insert({SingerId: 299, AlbumId: 1, Title: 'a'}));
  },

  async defaults_and_generated(d) {
    await d.google.table('Events').insert({Id: 'default'});
    await d.google.table('Events').insert({Id: 'given', Kind: 'fancy'});
    equal(
      [['default', 'plain', '7'], ['given', 'fancy', '5']],
      await read(d.google, 'Events', ['Id', 'Kind', 'Length'], {keys: [['default'], ['given']]}));
  },

  async check_constraint(d) {
    const refused = d.google.table('Events').insert({Id: 'refused', Kind: 'odd'});
    equal(true, (await failsWith('OUT_OF_RANGE', refused)).includes('KindIsKnown'));
  },

  async commit_timestamp(d) {
    const first = await commit(d.google, t => t.insert('Events', {Id: 'mutation', Written: Spanner.COMMIT_TIMESTAMP}));
    const second = await d.google.runTransactionAsync(async t => {
      await t.runUpdate("INSERT INTO Events (Id, Written) VALUES ('statement', PENDING_COMMIT_TIMESTAMP())");
      return (await t.commit())[0].commitTimestamp;
    });
    const rows = await read(d.google, 'Events', ['Id', 'Written'], {keys: [['mutation'], ['statement']]});
    equal([['mutation', stamp(first)], ['statement', stamp(second)]], rows);
  },

  async batch_write(d) {
    const groups = numbers(4).map(number => [{Name: `group ${number}`, Value: number}]);
    groups.push([{Name: 'group 0', Value: 7}, {Name: 'group 9', Value: 9}]);
    const stream = d.google.batchWriteAtLeastOnce(groups.map(rows => {
      const group = new MutationGroup();
      group.insert('Counters', rows);
      return group;
    }));
    let [answered, failed] = [0, 0];
    stream.on('data', answer => {
      answered += answer.indexes.length;
      if (answer.status.code) failed += answer.indexes.length;
    });
    await once(stream, 'end');
    // Groups are applied in any order: of the two that insert the same row, one fails.
    equal([5, 1], [answered, failed]);
  },

  async types_scalar(d) {
    await d.google.table('Scalars').insert({Id: 1, ...object(NAMES, ROW)});
    equal([WIRE], await read(d.google, 'Scalars', NAMES, {keys: [1]}));
    equal([WIRE], await query(d.google, `SELECT ${NAMES.join(', ')} FROM Scalars WHERE Id = 1`));
  },

  async types_null(d) {
    for (const table of ['Scalars', 'Arrays']) {
      await d.google.table(table).insert({Id: 2, ...object(NAMES, nothing)});
      equal([nothing], await read(d.google, table, NAMES, {keys: [2]}));
    }
  },

  async types_extreme(d) {
    const names = ['Id', 'Int', 'Float4', 'Float8', 'Num', 'Str', 'Byt', 'Dat', 'Tim'];
    const digits = `${'9'.repeat(29)}.999999999`;
    const low = [
      Spanner.int('-9223372036854775808'), Spanner.float32(-Infinity), Spanner.float(-Infinity),
      Spanner.numeric(`-${digits}`), '', Buffer.alloc(0), '0001-01-01', '0001-01-01T00:00:00Z',
    ];
    const high = [
      Spanner.int('9223372036854775807'), Spanner.float32(Infinity), Spanner.float(Number.MAX_VALUE),
      Spanner.numeric(digits), '\x00\n"\'\\', Buffer.from([255]), '9999-12-31', '9999-12-31T23:59:59.999999999Z',
    ];
    const table = d.google.table('Scalars');
    await table.insert([object(names, [10, ...low]), object(names, [11, ...high])]);
    await table.insert({Id: 12, Float4: Spanner.float32(NaN), Float8: Spanner.float(NaN)});
    const wireLow = [
      '-9223372036854775808', '-Infinity', '-Infinity', `-${digits}`, '', '', '0001-01-01', '0001-01-01T00:00:00Z',
    ];
    const wireHigh = [
      '9223372036854775807', 'Infinity', Number.MAX_VALUE, digits, '\x00\n"\'\\', '/w==', '9999-12-31',
      '9999-12-31T23:59:59.999999999Z',
    ];
    equal([['10', ...wireLow], ['11', ...wireHigh]], await read(d.google, 'Scalars', names, {keys: [10, 11]}));
    equal([['NaN', 'NaN']], await read(d.google, 'Scalars', ['Float4', 'Float8'], {keys: [12]}));
  },

  async types_array(d) {
    const full = ROW.map(value => [value, null]);
    await d.google.table('Arrays').insert([
      {Id: 20, ...object(NAMES, full)}, {Id: 21, ...object(NAMES, NAMES.map(() => []))},
    ]);
    equal(
      [WIRE.map(value => [value, null]), NAMES.map(() => [])],
      await read(d.google, 'Arrays', NAMES, {keys: [20, 21]}));
  },

  async types_parameter(d) {
    const names = numbers(TYPES.length).map(number => `p${number}`);
    const sql = `SELECT ${names.map(name => `@${name}`).join(', ')}`;
    const arrays = TYPES.map(child => ({type: 'array', child}));
    for (const [values, types, expected] of [
      [ROW, TYPES, WIRE],
      [nothing, TYPES, nothing],
      [ROW.map(value => [value, null]), arrays, WIRE.map(value => [value, null])],
    ]) {
      equal([expected], await query(d.google, sql, object(names, values), object(names, types)));
    }
  },

  async types_uuid(d) {
    const [operation] = await d.google.updateSchema([
      'CREATE TABLE Keyed (Id UUID NOT NULL, Other UUID) PRIMARY KEY (Id)',
    ]);
    await operation.promise();
    const key = '6f1d2c3b-4a59-4e68-9768-5a4b3c2d1e0f';
    await d.google.table('Keyed').insert({Id: key, Other: null});
    equal([[key, null]], await read(d.google, 'Keyed', ['Id', 'Other'], {keys: [key]}));
  },

  async read_keys(d) {
    await singers(d, 300, 10);
    const rows = await read(d.google, 'Singers', ['SingerId'], {keys: [[307], [301], [399], [304]]});
    equal([['301'], ['304'], ['307']], rows.sort());
    equal([], await read(d.google, 'Singers', ['SingerId'], {keys: [[399]]}));
  },

  async read_ranges(d) {
    await singers(d, 400, 10);
    const ids = request => read(d.google, 'Singers', ['SingerId'], request);
    equal([['402'], ['403']], await ids({ranges: [{startClosed: [402], endOpen: [404]}]}));
    equal([['403'], ['404']], await ids({ranges: [{startOpen: [402], endClosed: [404]}]}));
    equal([['403']], await ids({ranges: [{startOpen: [402], endOpen: [404]}]}));
    equal([['402'], ['403'], ['404']], await ids(closed(402, 404)));
    equal([['400'], ['401']], await ids({...closed(400, 499), limit: 2}));
    await d.google.table('Albums').insert([
      ...numbers(3).map(AlbumId => ({SingerId: 400, AlbumId})), {SingerId: 401, AlbumId: 0},
    ]);
    // A prefix of the key stands for all rows below it.
    equal(
      [['400', '0'], ['400', '1'], ['400', '2']],
      await read(d.google, 'Albums', ['SingerId', 'AlbumId'], closed(400, 400)));
  },

  async read_index(d) {
    await singers(d, 500, 10);
    equal(
      [['singer 502', '502', '1952-01-01'], ['singer 503', '503', '1953-01-01'], ['singer 504', '504', '1954-01-01']],
      await read(d.google, 'Singers', ['Name', 'SingerId', 'Born'],
        {...closed('singer 502', 'singer 504'), index: 'SingersByName'}));
  },

  async large_value(d) {
    const data = randomBytes(6 * 2 ** 20);
    await d.google.table('Blobs').insert({Id: 1, Data: data});
    const [[[column]]] = await d.google.table('Blobs').read({columns: ['Data'], keys: [1]});
    equal(true, data.equals(column.value));
  },

  async large_result(d) {
    const rows = numbers(4000).map(number => [String(1000 + number), String(number).padStart(6, '0').repeat(300)]);
    await d.google.table('Singers').insert(rows.map(([SingerId, Name]) => ({SingerId, Name})));
    const [found] = await d.google.run('SELECT SingerId, Name FROM Singers WHERE SingerId >= 1000 ORDER BY SingerId');
    equal(rows, plain(found));
    equal(rows, await read(d.google, 'Singers', ['SingerId', 'Name'], closed(1000, 99999)));
  },
};
