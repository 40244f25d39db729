-- Fragment listeners: counts no listeners, while a slot of sharded channels is being moved to this node.
--
-- Offers: listeners(channel), always -1
-- After:
-- Why: The listeners are at the node that has the slot.

local function listeners()
  return -1
end
