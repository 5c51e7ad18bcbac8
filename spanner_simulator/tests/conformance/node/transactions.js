// A read-write transaction that is retried.

import {commit, equal, read, sleep} from './harness.js';

async function put(d, ...rows) {
  return commit(d.google, t => t.upsert('Counters', rows.map(([Name, Value]) => ({Name, Value}))));
}

async function counter(d, name, bounds = {}) {
  const rows = await read(d.google, 'Counters', ['Value'], {keys: [name]}, bounds);
  return rows[0]?.[0] ?? null;
}

export const transactionChecks = {
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
};
