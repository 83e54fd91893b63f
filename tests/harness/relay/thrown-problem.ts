import { Problem } from '../../../src/errors.ts';

/** The code of the problem that `run` throws. */
export function codeThrownBy(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof Problem) return error.code;
    throw error;
  }
  return 'none';
}
