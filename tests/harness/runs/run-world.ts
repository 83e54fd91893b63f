import { randomUUID } from 'node:crypto';
import { asProblem } from '../../../src/errors.ts';
import { CLIENT_LEFT } from '../../../src/http/client-connection.ts';
import { heldBytes } from '../../../src/relay/message/held-bytes.ts';
import { redisRunStore } from '../../../src/runs/redis-run-store.ts';
import type { Run } from '../../../src/runs/run.ts';
import type { RunName } from '../../../src/runs/run-name.ts';
import { Runs } from '../../../src/runs/runs.ts';
import type { Redis } from '../../../src/storage/redis.ts';
import { runSealer } from '../relay/run-sealer.ts';
import { RecordingSink } from './carried-run.ts';
import { FaultyRedis, LEASES, TIMES } from './run-stores.ts';

/** A message that the bot service has taken, and its answer. */
export interface Send {
  readonly key: string;
  readonly outlivesRun: boolean;
  readonly text: string;
  /** How often Redis had lost its data when it was confirmed; undefined if it lost some meanwhile. */
  readonly losses: number | undefined;
  hasEnded: boolean;
  isComplete: boolean;
}

/** A request of a client. */
export interface Client {
  readonly sink: RecordingSink;
  readonly instance: Instance;
  readonly done: Promise<void>;
  leave(): void;
}

interface Instance {
  readonly runs: Runs;
  readonly fault: FaultyRedis;
  isKilled: boolean;
}

/** The work for a run, which waits for its next turn. */
interface Work {
  readonly run: Run;
  readonly instance: Instance;
  next: (() => void) | undefined;
  isOver: boolean;
}

const EVENTS = 3;

/** Several instances on one database of a Redis, a bot service, and clients. Its methods are what may happen, in any order. */
export class RunWorld {
  readonly sends: Send[] = [];
  readonly clients: Client[] = [];
  /** What must never be, and was. */
  readonly faults: string[] = [];
  losses = 0;
  private readonly redis: Redis;
  private readonly conversation = randomUUID();
  private readonly instances: Instance[];
  private works: Work[] = [];

  constructor(redis: Redis, instances: number) {
    this.redis = redis;
    this.instances = Array.from({ length: instances }, () => this.newInstance());
  }

  /** A client of an instance sends a message. */
  post(at: number, message: number): void {
    const instance = this.at(at);
    if (instance.fault.state === 'frozen') return;
    // One of them can be said again after its end.
    const key = `${this.conversation}-${message}`;
    const name = { conversation: this.conversation, message: key, key, outlivesRun: message > 0 };
    const sink = new RecordingSink();
    const stop = new AbortController();
    const done = this.read(instance, name, sink, stop);
    const leave = () => {
      sink.end ??= 'left';
      stop.abort(CLIENT_LEFT);
      sink.source?.closed();
    };
    this.clients.push({ sink, instance, done, leave });
  }

  leave(client: number): void {
    this.clients[client % this.clients.length]?.leave();
  }

  async stop(at: number): Promise<void> {
    const instance = this.at(at);
    if (instance.fault.state !== 'frozen') await instance.runs.stop(this.conversation);
  }

  /** It is gone, and another one comes. */
  kill(at: number): void {
    const instance = this.at(at);
    instance.isKilled = true;
    instance.fault.state = 'frozen';
    this.instances[at % this.instances.length] = this.newInstance();
  }

  /** A process that is stopped for a while. */
  freeze(at: number): void {
    this.at(at).fault.state = 'frozen';
  }

  thaw(at: number): void {
    this.at(at).fault.state = 'well';
  }

  /** Redis loses its data. */
  async lose(): Promise<void> {
    this.losses += 1;
    await this.redis.onEach((server) => server.flushDb());
  }

  /** Something comes for a run: it is its turn to be sent, or its answer goes on. Returns whether there is one. */
  advance(work: number): boolean {
    this.works = this.works.filter(({ isOver, instance }) => !isOver && !instance.isKilled);
    const ready = this.works.filter(({ instance, next }) => next && instance.fault.state !== 'frozen');
    const one = ready[work % ready.length];
    const next = one?.next;
    if (one) one.next = undefined;
    next?.();
    return this.works.length > 0;
  }

  /** All instances go on. */
  thawAll(): void {
    for (const { fault } of this.instances) fault.state = 'well';
  }

  private at(index: number): Instance {
    return this.instances[index % this.instances.length] as Instance;
  }

  private newInstance(): Instance {
    const fault = new FaultyRedis();
    const leases = { ...LEASES, leaseMs: 60, calmMs: 50 };
    const options = { times: TIMES, maxBytes: 65_536, leases };
    const runs = new Runs({
      store: redisRunStore(fault.through(this.redis), runSealer, options),
      ...{ times: { ...TIMES, graceMs: 30 }, maxBytes: 65_536, bound: heldBytes(1 << 24), onGrace() {} },
    });
    return { runs, fault, isKilled: false };
  }

  private async read(
    instance: Instance,
    name: RunName,
    sink: RecordingSink,
    stop: AbortController,
  ): Promise<void> {
    try {
      const client = { stop, bindToSession: () => () => {} };
      const joined = await instance.runs.joinOrBegin({
        requestId: randomUUID(),
        lastEventId: undefined,
        waitsSince: performance.now(),
        client,
        name,
        conversation: name.conversation,
      });
      const { run, how } = joined;
      if (how === 'begun' && run.state !== 'ended') void this.work(instance, run, name);
      await joined.reader.head();
      await joined.reader.read(sink, joined.at);
    } catch (error) {
      sink.end ??= asProblem(error).code;
    }
  }

  /** What the route does for a new run. */
  private async work(instance: Instance, run: Run, name: RunName): Promise<void> {
    const work: Work = { run, instance, next: undefined, isOver: false };
    this.works.push(work);
    let send: Send | undefined;
    let failure: unknown;
    try {
      await turn(work);
      const { losses } = this;
      await instance.runs.confirm(run);
      run.sent();
      send = this.take(name, losses);
      await turn(work);
      run.beginStream(new Map());
      for (const event of send.text.match(/.+\n\n/g) ?? []) {
        await turn(work);
        run.stream.write(Buffer.from(event), false);
      }
      await turn(work);
      send.isComplete = true;
      run.stream.complete();
    } catch (error) {
      failure = error;
    }
    work.isOver = true;
    if (send && !instance.isKilled) send.hasEnded = true;
    if (!run.isElsewhere) run.end(failure);
  }

  /** The service takes a message: nothing must run twice, unless Redis has lost what it knew between the two. */
  private take({ key, outlivesRun }: RunName, lossesBefore: number): Send {
    const losses = lossesBefore === this.losses ? lossesBefore : undefined;
    const isSameTime = (send: Send) => losses !== undefined && send.losses === losses;
    const others = this.sends.filter((send) => send.key === key && isSameTime(send));
    if (others.some(({ hasEnded }) => outlivesRun || !hasEnded)) this.faults.push(`${key} runs twice`);
    const events = Array.from({ length: EVENTS }, (_, n) => `data: ${this.sends.length}-${n}\n\n`);
    const send = { key, outlivesRun, text: events.join(''), losses, hasEnded: false, isComplete: false };
    this.sends.push(send);
    return send;
  }
}

/** Waits for the turn of some work; rejects when its run is stopped. */
function turn(work: Work): Promise<void> {
  const { signal } = work.run.stop;
  return new Promise((resolve, reject) => {
    work.next = resolve;
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
