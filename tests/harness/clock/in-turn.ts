type Case = readonly [title: string, run: () => Promise<void>];

/** Makes cases for `testSideBySide` run one after another, beside the other ones: they share something. */
export function inTurn(cases: readonly Case[]): Case[] {
  let last = Promise.resolve();
  return cases.map(([title, run]) => {
    const inItsTurn = () => {
      last = last.then(run, run);
      return last;
    };
    return [title, inItsTurn];
  });
}
