/** How a bot is called that has no title: its name without the namespace, unless another one of `bots` has the same. */
export function botName(bot: string, bots: readonly string[] = []): string {
  const nameOf = (one: string) => one.slice(one.indexOf('/') + 1);
  const isAlone = bots.every((one) => one === bot || nameOf(one) !== nameOf(bot));
  return isAlone ? nameOf(bot) : bot;
}
