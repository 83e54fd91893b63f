import gate from '../../jest.config.js';

const [, options] = gate.transform['\\.ts$'];

/** The gate, with the edits of MUTANTS_EDITS in what it loads. */
export default {
  ...gate,
  rootDir: '../..',
  transform: { '\\.ts$': ['<rootDir>/bench/mutants/transform.js', options] },
  setupFilesAfterEnv: ['<rootDir>/bench/mutants/setup.js'],
};
