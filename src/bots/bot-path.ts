import type { Bot } from './bot.ts';

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
