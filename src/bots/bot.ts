/** A bot, by its decoded path parameters. */
export interface Bot {
  readonly namespace: string;
  readonly botProviderName: string;
}

/** `namespace/bot`, as the configuration names it. */
export function botName({ namespace, botProviderName }: Bot): string {
  return `${namespace}/${botProviderName}`;
}
