/** A bot, by its decoded path parameters. */
export interface Bot {
  readonly namespace: string;
  readonly botProviderName: string;
}

/** `namespace/bot`, as the configuration names it. */
export function botName({ namespace, botProviderName }: Bot): string {
  return `${namespace}/${botProviderName}`;
}

/** The first part of a bot's path: in the newest clients of the service, and in its specification. */
export const PATH_SHAPES = ['/ns', '/generic/ns'] as const;
export type PathShape = (typeof PATH_SHAPES)[number];

/** The route pattern of a bot's path, below the base path. */
export const botRoute = (shape: PathShape) => `${shape}/:namespace/bot-provider/:botProviderName`;

/** A bot's path at the bot service, encoded, after `prefix`, which has no slash at its end. */
export function botPath(prefix: string, shape: PathShape, { namespace, botProviderName }: Bot): string {
  const [ns, bot] = [encodeURIComponent(namespace), encodeURIComponent(botProviderName)];
  return `${prefix}${shape}/${ns}/bot-provider/${bot}`;
}

/** The groups of the bot service's operations that a configuration can enable, for all bots or for one. */
export const OPERATION_GROUPS = ['message', 'chat', 'files', 'metadata', 'sandbox'] as const;
export type OperationGroup = (typeof OPERATION_GROUPS)[number];
