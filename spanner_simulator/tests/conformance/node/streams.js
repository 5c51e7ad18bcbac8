// Change streams of a GoogleSQL database.

import {PreciseDate} from '@google-cloud/precise-date';
import {commit, control, equal, failsWith, stamp, wire} from './harness.js';

const SQL =
  'SELECT ChangeRecord FROM READ_Changes(start_timestamp => @start, end_timestamp => @end, ' +
  'partition_token => @token, heartbeat_milliseconds => @heartbeat)';

const NAME = 'node-google';

/** The records of one query, each an object with arrays of the three kinds. */
function changes(d) {
  return async function* (token, start, end) {
    const stream = d.google.runStream({
      sql: SQL,
      params: {start, end, token, heartbeat: 1000},
      types: {start: 'timestamp', end: 'timestamp', token: 'string', heartbeat: 'int64'},
    });
    for await (const row of stream) yield* row[0].value.map(named);
  };
}

/** The fields of structs by name, at all depths. */
function named(value) {
  if (value?.constructor.name === 'Struct') {
    return Object.fromEntries(value.map(field => [field.name, named(field.value)]));
  }
  return Array.isArray(value) ? value.map(named) : wire(value);
}

/** Data records from start to end, children after parents; the number of tokens; heartbeats. */
export async function follow(read, start, end) {
  const [found, beats, done, waiting] = [[], [], new Set(), new Map()];
  for (const token of await tokens(read, start)) waiting.set(token, {start, parents: []});
  while (waiting.size) {
    const [token, {start: since}] = [...waiting].find(([, one]) => one.parents.every(parent => done.has(parent)));
    for await (const change of read(token, since, end)) {
      found.push(...(change.data_change_record ?? []));
      beats.push(...(change.heartbeat_record ?? []).map(record => record.timestamp));
      for (const record of change.child_partitions_record ?? []) {
        const late = new PreciseDate(record.start_timestamp).getFullTime() > new PreciseDate(end).getFullTime();
        for (const child of late ? [] : record.child_partitions) {
          if (done.has(child.token)) continue;
          waiting.set(child.token, {start: record.start_timestamp, parents: child.parent_partition_tokens});
        }
      }
    }
    waiting.delete(token);
    done.add(token);
  }
  return [found, done.size, beats];
}

async function tokens(read, start) {
  const found = [];
  for await (const change of read(null, start, null)) {
    found.push(change.child_partitions_record[0].child_partitions[0].token);
  }
  return found;
}

/** Commits what the work queues; the commit timestamp in its text form. */
async function put(d, work, options = {}) {
  return stamp(await commit(d.google, work, options));
}

const account = (Id, Balance, Owner) => t => t.insert('Accounts', {Id, Balance, Owner});

export const streamChecks = {
  async stream_initial(d) {
    const start = await put(d, account(1, 100, 'initial'));
    const seen = new Set();
    let number = 0;
    for await (const one of changes(d)(null, start, null)) {
      const [record] = one.child_partitions_record;
      const [child] = record.child_partitions;
      equal([[], []], [one.data_change_record, one.heartbeat_record]);
      equal([start, String(number).padStart(8, '0'), []],
        [record.start_timestamp, record.record_sequence, child.parent_partition_tokens]);
      seen.add(child.token);
      number += 1;
    }
    equal(true, number > 0 && seen.size === number);
  },

  async stream_data(d) {
    const start = await put(d, t => {
      t.insert('Accounts', [{Id: 10, Balance: 1, Owner: 'a'}, {Id: 11, Balance: null, Owner: null}]);
    });
    await put(d, t => t.update('Accounts', {Id: 10, Balance: 2}));
    const last = await put(d, t => t.deleteRows('Accounts', [11]));
    const [found] = await follow(changes(d), start, last);
    const place = one => `${one.commit_timestamp} ${one.record_sequence}`;
    found.sort((one, other) => (place(one) < place(other) ? -1 : 1));
    const none = {Balance: null, Owner: null};
    equal(
      [
        ['INSERT', {keys: {Id: '10'}, new_values: {Balance: '1', Owner: 'a'}, old_values: {}}],
        ['INSERT', {keys: {Id: '11'}, new_values: none, old_values: {}}],
        ['UPDATE', {keys: {Id: '10'}, new_values: {Balance: '2'}, old_values: {Balance: '1'}}],
        ['DELETE', {keys: {Id: '11'}, new_values: {}, old_values: none}],
      ],
      found.flatMap(record => record.mods.map(mod => [record.mod_type, mod])));
    equal(
      [
        {name: 'Id', type: {code: 'INT64'}, is_primary_key: true, ordinal_position: '1'},
        {name: 'Balance', type: {code: 'INT64'}, is_primary_key: false, ordinal_position: '2'},
        {name: 'Owner', type: {code: 'STRING'}, is_primary_key: false, ordinal_position: '3'},
      ],
      found[0].column_types);
    equal(['Accounts', 'OLD_AND_NEW_VALUES'], [found[0].table_name, found[0].value_capture_type]);
    equal([start, last], [found[0].commit_timestamp, found.at(-1).commit_timestamp]);
  },

  async stream_heartbeats(d) {
    const start = await put(d, account(20, 1, 'a'));
    const end = new Date(new Date(start).getTime() + 3500).toISOString();
    const [, , beats] = await follow(changes(d), start, end);
    equal([], beats.filter(beat => new Date(beat) < new Date(start) || new Date(beat) > new Date(end)));
    equal(true, beats.length >= 2);
    return `${beats.length} heartbeats`;
  },

  async stream_split(d) {
    const ids = Array.from({length: 20}, (_, number) => 1000 + number);
    const start = await put(d, t => t.insert('Accounts', ids.map(Id => ({Id, Balance: 0, Owner: 'split'}))));
    let last;
    for (const Balance of [1, 2]) {
      await control('split', {database: NAME, stream: 'Changes'});
      last = await put(d, t => t.update('Accounts', ids.map(Id => ({Id, Balance}))));
    }
    const [found, count] = await follow(changes(d), start, last);
    const seen = {};
    for (const mod of found.flatMap(record => record.mods)) (seen[mod.keys.Id] ??= []).push(mod.new_values.Balance);
    equal(Object.fromEntries(ids.map(id => [id, ['0', '1', '2']])), seen);
    equal(true, count >= 3);
    return `${count} stream partitions`;
  },

  async stream_resume(d) {
    const start = await put(d, account(30, 0, 'resume'));
    const read = changes(d);
    let token;
    for (const one of await tokens(read, start)) {
      for await (const change of read(one, start, start)) {
        if (change.data_change_record.length) token = one;
      }
    }
    const seen = [];
    let interrupted = 0;
    for await (const change of read(token, start, null)) {
      seen.push(...change.data_change_record.flatMap(record => record.mods.map(mod => mod.new_values.Balance)));
      if (!change.data_change_record.length) continue;
      if (seen.length >= 20) break;
      const answer = await control('interrupt', {database: NAME, stream: 'Changes', token});
      interrupted += answer.interrupted;
      await put(d, t => t.update('Accounts', {Id: 30, Balance: seen.length}));
    }
    equal(Array.from({length: 20}, (_, number) => String(number)), seen);
    equal(true, interrupted > 0);
    return `${interrupted} interruptions`;
  },

  async stream_tag(d) {
    const start = await put(d, account(40, 1, 'tagged'), {requestOptions: {transactionTag: 'conformance'}});
    const last = await put(d, account(41, 1, 'untagged'));
    const [found] = await follow(changes(d), start, last);
    equal({40: 'conformance', 41: ''}, Object.fromEntries(found.map(one => [one.mods[0].keys.Id, one.transaction_tag])));
  },

  async stream_errors(d) {
    const start = await put(d, account(50, 1, 'errors'));
    const drain = async (token, from) => {
      for await (const change of changes(d)(token, from, null)) equal(undefined, change);
    };
    await failsWith('OUT_OF_RANGE', drain(null, '2020-01-01T00:00:00Z'));
    await failsWith('INVALID_ARGUMENT', drain('nonsense', start));
    await failsWith('INVALID_ARGUMENT', drain(null, null));
  },
};
