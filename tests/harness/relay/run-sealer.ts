import { scopedSealer } from '../../../src/authenticate/sessions/seal.ts';
import { secret } from '../../../src/secret.ts';

/** Seals what tests store of runs. */
export const runSealer = scopedSealer([secret('a secret of the tests, long enough')], 'runs');
