import { Counter, type Registry } from 'prom-client';

/** The metrics of the connections of clients. */
export function declareConnectionMetrics(registry: Registry) {
  const registers = [registry];
  const connectionsCut = new Counter({
    name: 'bot_relay_connections_cut_total',
    help: 'Connections of clients that were cut because more than 4 requests, or more than 64 KiB of a body, waited on them',
    registers,
  });
  const connectionsRefused = new Counter({
    name: 'bot_relay_connections_refused_total',
    help: 'Connections of clients that were closed without an answer, by who had too many: their address or the instance',
    labelNames: ['reason'],
    registers,
  });
  for (const reason of ['address', 'instance']) connectionsRefused.inc({ reason }, 0);
  return { connectionsCut, connectionsRefused };
}
