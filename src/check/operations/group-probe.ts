import type { OperationGroup } from '../../bots/bot.ts';
import type { Answer } from '../through-client.ts';
import type { OperationSession } from './operation-session.ts';

/** What a request of a second user shows. */
export interface Apartness {
  /** `open`: the user reaches what is not theirs. `unclear`: the answer proves nothing. */
  readonly state: 'apart' | 'open' | 'unclear';
  /** The answer, in words. */
  readonly says: string;
}

/** A request of a second user for what the first one has. */
export interface ForeignQuestion {
  /** What is asked for, in one or two words. */
  readonly what: string;
  ask(other: OperationSession): Promise<Apartness>;
}

/** How a check proves one group of operations. */
export interface GroupProbe {
  /** Sends a request that changes nothing and costs nothing. A group that is off answers it with 501. */
  ask(session: OperationSession): Promise<Answer>;
  /**
   * Proves the group as the first user, if it is on, and reports what it finds. Returns what a second user must then
   * ask for in vain. `other` is that user, if there is one, for what must be asked at once.
   */
  prove?(session: OperationSession, other?: OperationSession): Promise<readonly ForeignQuestion[]>;
}

export type GroupProbes = Readonly<Record<OperationGroup, GroupProbe>>;
