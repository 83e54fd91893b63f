import express, { type Express } from 'express';
import { accessLog, loggedAddress } from './arrive/access-log.ts';
import { notFound, problemResponse } from './arrive/problem-response.ts';
import { refuseWhileDraining, refuseWhileFull } from './arrive/refuse-requests.ts';
import { requestId, requestTarget } from './arrive/request-head.ts';
import { securityHeaders } from './arrive/security-headers.ts';
import { inOrder, spreadRequests } from './arrive/stages.ts';
import { cors } from './guard/cors.ts';
import { knownHost } from './guard/known-host.ts';
import type { BotServices } from './routes/bot-services.ts';
import type { Dependencies } from './routes/dependencies.ts';
import { botRoutes, METHODS, pageRoutes, sessionRoutes } from './routes/mount.ts';
import { checkProbeRoute, probePaths, probeRoutes } from './routes/probes.ts';
import { isHttps, type SharedSteps } from './routes/shared-steps.ts';
import { signInRoutes } from './routes/sign-in.ts';
import { requestMetrics } from './watch/request-metrics.ts';

/** The routes in order, and the stages that stand before all of them. */
export function createApp(dependencies: Dependencies, steps: SharedSteps, services: BotServices): Express {
  const { bounds, config, logger, lifecycle, metrics } = dependencies;
  const app = express();
  app.set('trust proxy', config.trustProxy);
  app.set('query parser', false);
  app.enable('case sensitive routing').enable('strict routing');
  app.disable('x-powered-by').disable('etag');
  const probes = probePaths(config);

  app.use(
    inOrder([
      spreadRequests(),
      requestId(),
      accessLog(logger, loggedAddress(config)),
      metrics && requestMetrics(metrics),
      securityHeaders({ https: isHttps(config) }),
      requestTarget(),
      config.hosts && knownHost({ ...config.hosts, exceptPaths: probes }),
      cors({ origins: config.allowedOrigins, methods: METHODS, headers: config.corsHeaders }),
      refuseWhileDraining(lifecycle.isDraining, probes),
      refuseWhileFull(bounds, probes),
    ]),
  );

  probeRoutes(app, dependencies);
  // First, since messages are the most frequent: Express tries its routes in order.
  botRoutes(app, dependencies, services);
  signInRoutes(app, dependencies, steps);
  sessionRoutes(app, dependencies, steps);
  pageRoutes(app, dependencies, steps);
  checkProbeRoute(app, dependencies, steps);
  app.use(async (req, res) => {
    await steps.limitByAddress(req, res);
    throw notFound();
  });
  app.use(problemResponse(logger));
  return app;
}
