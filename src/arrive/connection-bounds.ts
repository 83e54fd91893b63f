import type { Socket } from 'node:net';
import { countedAddress } from '../http/client-address.ts';
import type { Logger } from '../logger.ts';

/** How many more connections are taken while all others are in use, for probes, which must be answered. */
const RESERVED = 16;
/** How often refused connections are reported at most, in ms: there may be very many. */
const REPORT_EVERY_MS = 1_000;

/** Why a connection was refused: its address, or the instance, has too many. */
export type RefusedBy = 'address' | 'instance';

interface BoundsOptions {
  /** How many connections there may be, and how many of one address. */
  readonly most: number;
  readonly mostOfAddress: number;
  readonly onRefused?: ((by: RefusedBy) => void) | undefined;
}

/** The bounds of the connections of clients. A connection is idle while no answer is under way on it. */
export interface ConnectionBounds {
  /** Takes a new connection, which is idle. Closes it and returns false if there is no room. */
  take(socket: Socket): boolean;
  setIdle(socket: Socket, isIdle: boolean): void;
  /** Whether it was taken while all others were in use, so that only a probe is answered on it. */
  isReserved(socket: Socket): boolean;
}

/** Connections that share a bound. */
interface Group {
  readonly most: number;
  count: number;
  /** In the order in which they became idle. */
  readonly idle: Set<Socket>;
}

/**
 * Over a bound, the connection that has been idle for longest is closed. If none is idle, the new one is closed if its
 * address has too many; else it is reserved for a probe. `maxConnections` of Node.js would close the new one in any case.
 */
export function connectionBounds({ most, mostOfAddress, onRefused }: BoundsOptions): ConnectionBounds {
  const usual = newGroup(most);
  const reserved = newGroup(RESERVED);
  const byAddress = new Map<string, Group>();
  const taken = new Map<Socket, { readonly address: string; readonly groups: readonly Group[] }>();

  /** Whether there is room for one more; the connection that has been idle for longest is closed for it. */
  function hasRoom({ most, count, idle }: Group): boolean {
    if (count < most) return true;
    const [oldest] = idle;
    if (!oldest) return false;
    leave(oldest);
    oldest.destroy();
    return true;
  }

  function leave(socket: Socket): void {
    const { address = '', groups = [] } = taken.get(socket) ?? {};
    taken.delete(socket);
    for (const group of groups) {
      group.count -= 1;
      group.idle.delete(socket);
    }
    if (byAddress.get(address)?.count === 0) byAddress.delete(address);
  }

  function refuse(socket: Socket, by: RefusedBy): false {
    socket.destroy();
    onRefused?.(by);
    return false;
  }

  return {
    take(socket) {
      const address = countedAddress(socket.remoteAddress) ?? '';
      const own = byAddress.get(address) ?? newGroup(mostOfAddress);
      if (!hasRoom(own)) return refuse(socket, 'address');
      const common = [usual, reserved].find(hasRoom);
      if (!common) return refuse(socket, 'instance');
      byAddress.set(address, own);
      const groups = [own, common];
      for (const group of groups) {
        group.count += 1;
        group.idle.add(socket);
      }
      taken.set(socket, { address, groups });
      socket.once('close', () => leave(socket));
      return true;
    },
    setIdle(socket, isIdle) {
      for (const { idle } of taken.get(socket)?.groups ?? []) {
        if (isIdle) idle.add(socket);
        else idle.delete(socket);
      }
    },
    isReserved: (socket) => taken.get(socket)?.groups.includes(reserved) ?? false,
  };
}

function newGroup(most: number): Group {
  return { most, count: 0, idle: new Set() };
}

/** Makes the function that counts a refused connection, by its reason, and reports it in the log within a second. */
export function reportRefused(logger: Logger, count?: (by: RefusedBy) => void): (by: RefusedBy) => void {
  const unreported = new Map<RefusedBy, number>();
  return (by) => {
    count?.(by);
    if (unreported.size === 0) setTimeout(report, REPORT_EVERY_MS).unref();
    unreported.set(by, (unreported.get(by) ?? 0) + 1);
  };

  function report(): void {
    for (const [cause, refused] of unreported) logger.warn({ cause, refused }, 'connections refused');
    unreported.clear();
  }
}
