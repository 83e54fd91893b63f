import type { BotClient } from '../session/bot-client.ts';
import { ofClient } from '../session/client-internals.ts';
import { callPage } from '../transport/relay-error.ts';
import { inBackground } from '../transport/waits.ts';
import type { ShownChannel } from './channel-answer.ts';
import { channelCalls } from './channel-calls.ts';
import { type ChannelOpening, channelOpening } from './channel-opening.ts';
import { channelPast } from './channel-past.ts';
import { channelRuns } from './channel-runs.ts';
import { channelSends } from './channel-sends.ts';
import { channelState } from './channel-state.ts';
import { channelStop } from './channel-stop.ts';
import type { Channel, ChannelMessage, ChannelOptions } from './channel-types.ts';

/** How long a channel is kept that is not used, in ms. */
const GC_MS = 300_000;

interface Registered {
  readonly channel: Channel;
  /** Later calls of `createChannel` change these. */
  readonly options: ChannelOptions;
}

const registry = new WeakMap<object, Map<string | undefined, Registered>>();

/**
 * The channel with this id. The same client and id give the same channel, with the options of all calls; without an id,
 * it is the default one of the user. Nothing is asked until it is subscribed to, or until something is sent.
 * @param client The client of the bot.
 * @param options Those of a later call change those that it names.
 */
export function createChannel(client: BotClient, options: ChannelOptions = {}): Channel {
  const kept = ofClient(registry, client, () => new Map());
  const before = kept.get(options.id);
  if (before) {
    Object.assign(before.options, options);
    return before.channel;
  }
  const own = { ...options };
  const one: Registered = {
    options: own,
    channel: newChannel(client, own, (isUsed) => {
      if (!isUsed && kept.get(own.id) === one) kept.delete(own.id);
      else if (isUsed && !kept.has(own.id)) kept.set(own.id, one);
    }),
  };
  kept.set(own.id, one);
  return one.channel;
}

/** A channel that is in no registry. `onUse` is called when it is used, and when it has not been used for a while. */
export function newChannel(
  client: BotClient,
  options: ChannelOptions,
  onUse?: (isUsed: boolean) => void,
): Channel {
  const state = channelState(options);
  const shown: ShownChannel = { state, options, pending: new Map(), onEnd };
  const past = channelPast(shown);
  const runs = channelRuns(shown, async (signal) => {
    await stopping.ended();
    const talk = await use.opened();
    await past.readyToSend(signal);
    return talk;
  });
  const stopping = channelStop({ talk: () => opening.talk(), past, runs, fail: state.fail });
  const isBusy = () => runs.isRunning() || (!stopping.ended() && past.isRunning());
  const { drop, ...sends } = channelSends(shown, runs, isBusy);
  const opening = channelOpening(client, {
    ...{ shown, past },
    leave() {
      shown.pending.clear();
      [drop, stopping.leave, runs.leave, past.close].forEach((end) => void end());
    },
  });
  const use = usage(opening, { state, options, isBusy, onUse });
  function onEnd(answer: ChannelMessage): void {
    callPage(() => options.onFinish?.(answer));
    past.save();
    use.look();
  }
  async function stop(): Promise<void> {
    drop();
    await stopping.stop();
  }
  const calls = channelCalls({ shown, opening: { ...opening, ...use }, past, stop });
  return {
    get id() {
      return opening.talk()?.customChannelId;
    },
    subscribe: use.subscribe,
    getSnapshot: state.shown,
    getServerSnapshot: () => state.first,
    ...sends,
    ...calls,
    stop,
    downloadUrl: (path) => opening.talk()?.downloadUrl(path) ?? '',
  };
}

/** What `usage` needs. */
interface UsageDependencies {
  readonly state: ShownChannel['state'];
  readonly options: ChannelOptions;
  readonly isBusy: () => boolean;
  readonly onUse: ((isUsed: boolean) => void) | undefined;
}

/** Counts the uses of a channel, and ends it when it was not used for a while. */
function usage(opening: ChannelOpening, { state, options, isBusy, onUse }: UsageDependencies) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  /** How many subscribers and calls use it. */
  let uses = 0;
  function look(): void {
    clearTimeout(timer);
    if (uses === 0) timer = inBackground(end, options.expert?.gcMs ?? GC_MS);
  }
  function end(): void {
    // It looks again when the run has ended.
    if (isBusy()) return;
    opening.end();
    onUse?.(false);
  }
  function hold(by: 1 | -1): void {
    uses += by;
    look();
  }
  if (onUse) look();
  return {
    ...{ look, hold },
    opened() {
      onUse?.(true);
      look();
      return opening.opened();
    },
    subscribe(listener: () => void) {
      const own = () => listener();
      state.listeners.add(own);
      hold(1);
      onUse?.(true);
      opening.begin();
      return () => {
        if (state.listeners.delete(own)) hold(-1);
      };
    },
  };
}
