import { describe, expect, test } from '@jest/globals';
import express from 'express';
import request from 'supertest';
import { health, readiness } from '../../src/watch/health.ts';

describe('the probes', () => {
  test('say that the process lives', async () => {
    const { status, body } = await request(express().use(health())).get('/');
    expect({ status, body }).toEqual({ status: 200, body: { status: 'ok' } });
  });

  test('say ready only while every check holds, and name each', async () => {
    let storeHolds = true;
    const app = express().use(readiness({ accepting: () => true, store: async () => storeHolds }));
    const probe = async () => {
      const { status, body } = await request(app).get('/');
      return { answered: status, ...body };
    };
    expect(await probe()).toEqual({
      answered: 200,
      status: 'ready',
      checks: { accepting: 'ok', store: 'ok' },
    });
    storeHolds = false;
    expect(await probe()).toEqual({
      answered: 503,
      status: 'not ready',
      checks: { accepting: 'ok', store: 'failed' },
    });
  });
});
