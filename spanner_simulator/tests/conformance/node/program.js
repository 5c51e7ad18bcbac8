// The checks of ../README.md by the official Node client: a JSON line for each.

import {walk} from './harness.js';
import {postgresChecks} from './postgres.js';
import {rowChecks} from './rows.js';
import {streamChecks} from './streams.js';
import {transactionChecks} from './transactions.js';

await walk({...rowChecks, ...transactionChecks, ...streamChecks, ...postgresChecks});
// The client's background work is not waited for.
process.exit(0);
