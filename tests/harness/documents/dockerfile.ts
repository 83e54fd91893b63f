/** One step of a Dockerfile, such as `RUN npm ci`. */
export interface Step {
  /** The name of the stage, or its number if it has no name. */
  readonly stage: string;
  readonly instruction: string;
  readonly text: string;
}

/** The steps of a Dockerfile in order, without comments; continued lines are joined. */
export function parseDockerfile(text: string): Step[] {
  const lines = text
    .replace(/^\s*#.*\n/gm, '')
    .replace(/\\\n\s*/g, '')
    .split('\n')
    .filter((line) => line.trim() !== '');
  let stage = '';
  let stages = 0;
  return lines.map((line) => {
    const [, instruction = '', rest = ''] = /^(\w+)\s+(.*)$/.exec(line) ?? [];
    if (instruction === 'FROM') {
      stage = /\sAS\s+(\S+)/i.exec(rest)?.[1] ?? String(stages);
      stages++;
    }
    return { stage, instruction, text: rest };
  });
}
