// A database of the PostgreSQL dialect, and the end of both databases.

import {commit, equal, failsWith, stamp, statements} from './harness.js';
import {INSTANCE} from './rows.js';
import {follow} from './streams.js';

function changes(d) {
  return async function* (token, start, end) {
    const stream = d.postgres.runStream({
      sql: 'SELECT * FROM spanner.read_json_changes($1, $2, $3, $4, null)',
      params: {p1: start, p2: end, p3: token, p4: 1000},
      types: {p1: 'timestamp', p2: 'timestamp', p3: 'string', p4: 'int64'},
    });
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
