// What the checks share: a JSON line for each, values in their wire form, and the control port.

import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {isDeepStrictEqual} from 'node:util';
import {PreciseDate} from '@google-cloud/precise-date';
import {Spanner} from '@google-cloud/spanner';

export const CODES = {
  INVALID_ARGUMENT: 3, NOT_FOUND: 5, ALREADY_EXISTS: 6, FAILED_PRECONDITION: 9, OUT_OF_RANGE: 11,
};

const CHECK_TIMEOUT_MS = 120_000;

/** Walks the checks in order; one that fails ends none of the others. */
export async function walk(checks) {
  // An error of the client that nobody waits for belongs to the check that runs.
  let stray = null;
  for (const name of ['unhandledRejection', 'uncaughtException']) {
    process.on(name, error => (stray = error));
  }
  const d = {spanner: new Spanner({projectId: 'conformance'})};
  for (const [check, act] of Object.entries(checks)) {
    let line;
    try {
      const detail = await within(act(d));
      if (stray) throw stray;
      line = {check, ok: true, detail: detail ?? ''};
    } catch (error) {
      const place = /(\w+\.js:\d+)/.exec(error.stack?.split('\n').find(at => /conformance.*\.js/.test(at) && !/node_modules|harness/.test(at)) ?? '');
      line = {check, ok: false, detail: `${error.message ?? error} ${place?.[1] ?? ''}`.slice(0, 600)};
    }
    stray = null;
    process.stdout.write(JSON.stringify(line) + '\n');
  }
}

async function within(work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('not done in time')), CHECK_TIMEOUT_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

export function equal(expected, found) {
  if (!isDeepStrictEqual(expected, found)) {
    const [one, other] = [expected, found].map(what => JSON.stringify(what)?.slice(0, 250));
    throw new Error(`expected ${one}, found ${other}`);
  }
}

/** The message of the error with this code that the work must fail with. */
export async function failsWith(code, work) {
  try {
    await work;
  } catch (error) {
    if (error.code !== CODES[code]) throw error;
    return error.message;
  }
  throw new Error(`${code} was due, and nothing went wrong`);
}

/** A value as it goes over the wire, whatever class the client has put it into. */
export function wire(value) {
  if (value === null || value === undefined) return null;
  // A struct is an array of fields, and its own map would make another struct.
  if (value.constructor.name === 'Struct') return Array.from(value, field => wire(field.value));
  if (Array.isArray(value)) return Array.from(value, wire);
  switch (value.constructor.name) {
    case 'Int':
    case 'Numeric':
    case 'PGNumeric':
      return value.value;
    case 'PGJsonb':
      return value.value;
    case 'Float':
    case 'Float32':
      return Number.isFinite(value.value) ? value.value : String(value.value);
    case 'Number':
      return Number.isFinite(value) ? value : String(value);
    case 'SpannerDate':
      return value.toJSON();
    case 'PreciseDate':
      return stamp(value);
    case 'Buffer':
      return value.toString('base64');
    default:
      return value;
  }
}

/** A timestamp as it goes over the wire: no zeros at the end of its fraction. */
export function stamp(value) {
  // A PreciseDate made from another one has lost what is below a millisecond.
  const precise = value.getFullTime ? value : new PreciseDate(value);
  return precise.toISOString().replace(/(\.\d*?)0*Z$/, '$1Z').replace('.Z', 'Z');
}

/** Rows as arrays of wire values. */
export function plain(rows) {
  return rows.map(row => row.map(column => wire(column.value)));
}

export async function read(database, table, columns, request, bounds = {}) {
  const [rows] = await database.table(table).read({columns, ...request}, bounds);
  return plain(rows);
}

/** Commits what `work` queues on a transaction, and gives the commit timestamp. */
export async function commit(database, work, options = {}) {
  return database.runTransactionAsync(options, async transaction => {
    work(transaction);
    const [answer] = await transaction.commit();
    return answer.commitTimestamp;
  });
}

/** The DDL of one of the shared schemas. */
export function statements(name) {
  const text = readFileSync(join(process.env.CONFORMANCE_SCHEMA, name), 'utf8');
  return text.split(';').map(one => one.trim()).filter(Boolean);
}

/** The answer to one verb of the simulator's control port. */
export async function control(verb, body) {
  const address = process.env.CONFORMANCE_CONTROL;
  const answer = await fetch(`http://${address}/${verb}`, {method: 'POST', body: JSON.stringify(body)});
  const found = await answer.json();
  if (!answer.ok) throw new Error(`control ${verb}: ${JSON.stringify(found)}`);
  return found;
}

export function sleep(ms) {
  return new Promise(resolve => setTimeout(resolve, ms));
}
