import type { Express } from 'express';
import { botRoute, PATH_SHAPES, type PathShape } from '../bots/bot.ts';
import { OPERATIONS, type Operation } from '../relay/operations/operation-table.ts';
import { type Methods, route, type Steps } from './route.ts';

export { METHODS } from '../relay/operations/operation-table.ts';

/** The steps of each operation, for each shape of its path. */
export interface OperationSteps {
  readonly message: (shape: PathShape) => Steps;
  readonly run: (operation: Operation) => Steps;
  readonly live: (operation: Operation, shape: PathShape) => Steps;
  readonly operation: (operation: Operation, shape: PathShape) => Steps;
}

/** Serves every operation of the table, in both shapes of its path, below `basePath`. */
export function operationRoutes(app: Express, basePath: string, steps: OperationSteps): void {
  for (const path of new Set(OPERATIONS.map((operation) => operation.path))) {
    const operations = OPERATIONS.filter((operation) => operation.path === path);
    for (const shape of PATH_SHAPES) {
      const methods: Methods = Object.fromEntries(
        operations.map((operation) => [operation.method.toLowerCase(), stepsOf(operation, shape, steps)]),
      );
      route(app, `${basePath}${botRoute(shape)}/${path}`, { ...methods, withoutHead: true });
    }
  }
}

function stepsOf(operation: Operation, shape: PathShape, steps: OperationSteps): Steps {
  if (operation.carriedBy === 'message') return steps.message(shape);
  if (operation.carriedBy === 'run') return steps.run(operation);
  return operation.carriedBy === 'live' ? steps.live(operation, shape) : steps.operation(operation, shape);
}
