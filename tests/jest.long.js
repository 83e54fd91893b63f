import { shared } from '../jest.config.js';

/** The proofs, which take minutes. */
export default { ...shared, rootDir: '..', testMatch: ['**/*.proof.ts'] };
