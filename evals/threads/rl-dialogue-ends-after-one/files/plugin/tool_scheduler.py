from swift.plugin.multi_turn import MultiTurnScheduler, multi_turns


class ToolScheduler(MultiTurnScheduler):
    async def run(self, infer_request, request_config, **kwargs):
        turn = 1
        while True:
            response = await self.infer_engine.infer_async(infer_request, request_config, **kwargs)
            infer_request.messages.append({"role": "assistant", "content": response.choices[0].message.content})
            if self.check_finished(infer_request, response.choices[0], turn):
                return response
            infer_request.messages.append({"role": "tool", "content": call_tool(infer_request)})
            turn += 1


multi_turns["tool_scheduler"] = ToolScheduler
