// Administration and sessions.

import {v1} from '@google-cloud/spanner';
import grpc from '@grpc/grpc-js';
import {equal, statements} from './harness.js';

const PROJECT = 'projects/conformance';
export const INSTANCE = `${PROJECT}/instances/conformance-node`;

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
};
